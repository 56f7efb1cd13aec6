// System, light or dark. The choice is applied before the first paint by theme.js; here it is changed.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];

const chosen = document.documentElement.dataset.theme;
export const theme = signal<Theme>(chosen === "light" || chosen === "dark" ? chosen : "system");

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("aivideo.theme");
    else localStorage.setItem("aivideo.theme", next);
  } catch {
    // Forbidden storage: the choice lasts until the page is left.
  }
}
