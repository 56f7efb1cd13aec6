// What the browser says about its window and its user's wishes, as signals.
import { signal, type ReadonlySignal } from "@preact/signals";

function matches(query: string): ReadonlySignal<boolean> {
  const list = matchMedia(query);
  const value = signal(list.matches);
  list.addEventListener("change", (event) => (value.value = event.matches));
  return value;
}

/** Two columns fit. */
export const wide = matches("(min-width: 900px)");
export const reducedMotion = matches("(prefers-reduced-motion: reduce)");

export const online = signal(navigator.onLine);
addEventListener("online", () => (online.value = true));
addEventListener("offline", () => (online.value = false));
