// A page's heading. It takes the focus after a navigation, so that a screen reader says where one has come to; the
// first page leaves the focus to the browser.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { navigations, restoreScroll } from "../router";
import { focusIsTaken } from "./focus";

export function Title({ children }: { children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (navigations.peek() === 0) return;
    if (!focusIsTaken()) heading.current?.focus({ preventScroll: true });
    restoreScroll();
  }, []);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {children}
    </h1>
  );
}
