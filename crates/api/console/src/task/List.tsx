// A list of tasks that can be walked with j and k while the focus is in it; Enter opens, as links do.
import type { ComponentChildren, TargetedKeyboardEvent } from "preact";

export function List({ label, children }: { label: string; children: ComponentChildren }) {
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLUListElement>): void => {
    const step = event.key === "j" ? 1 : event.key === "k" ? -1 : 0;
    if (step === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...event.currentTarget.querySelectorAll<HTMLElement>("a.row")];
    const at = rows.indexOf(document.activeElement as HTMLElement);
    const next = rows[at + step];
    if (at < 0 || !next) return;
    event.preventDefault();
    next.focus();
  };
  return (
    <ul class="rows" aria-label={label} onKeyDown={onKeyDown}>
      {children}
    </ul>
  );
}
