// What a screen reader says. The two regions are in the page from load; text is put in, and cleared so that the same
// sentence can be said again.
const CLEAR_MS = 5_000;
const timers = new Map<string, ReturnType<typeof setTimeout>>();

function say(region: "status" | "alert", text: string): void {
  const element = document.getElementById(region);
  if (!element) return;
  element.textContent = text;
  clearTimeout(timers.get(region));
  timers.set(
    region,
    setTimeout(() => (element.textContent = ""), CLEAR_MS),
  );
}

/** Politely: stages, quarters, the begin and end of a countdown, "Copied". */
export const announce = (text: string): void => say("status", text);

/** At once: refusals, the end of the session. */
export const alertNow = (text: string): void => say("alert", text);
