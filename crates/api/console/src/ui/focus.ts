// Moving the focus to something that is about to be drawn.

/** Focuses the first match once the page has been drawn, and wins over the heading that navigation focuses. */
export function focusSoon(selector: string): void {
  wanted = selector;
  setTimeout(() => {
    if (wanted !== selector) return;
    wanted = null;
    document.querySelector<HTMLElement>(selector)?.focus();
  }, 50);
}

let wanted: string | null = null;

/** Whether a place for the focus was already asked for. */
export const focusIsTaken = (): boolean => wanted !== null;
