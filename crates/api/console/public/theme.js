// Runs before the first paint, so that a chosen theme never flashes. It is a file because the policy allows no
// inline script, and it keeps its plain name because the page refers to it before anything is bundled.
try {
  const theme = localStorage.getItem("aivideo.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme is a fine answer.
}
