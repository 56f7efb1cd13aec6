// Generate. It keeps the focus through everything that can happen to a send, so it is never really disabled: while it
// has to wait it says for how long, and a press does nothing.
import { useEffect, useRef } from "preact/hooks";
import { announce } from "../state/announce";
import { useCountdown } from "../state/countdown";
import { clearRefusal, sending, underWay } from "../state/send";
import { clock } from "../format/time";

/** Whether a press would do nothing. */
export function sendBlocked(): boolean {
  const state = sending.peek();
  return underWay() || (state.kind === "refused" && state.until !== null && performance.now() < state.until);
}

export function SendButton() {
  const state = sending.value;
  const until = state.kind === "refused" ? state.until : null;
  const left = useCountdown(until);
  const counted = useRef(false);
  useEffect(() => {
    if (until === null) return;
    if (left > 0 && !counted.current) {
      counted.current = true;
    } else if (left === 0) {
      counted.current = false;
      announce("You can generate now.");
      clearRefusal();
    }
  }, [until, left === 0]);
  const busy = state.kind === "sending" || state.kind === "checking" || state.kind === "busy";
  const label = busy ? "Sending" : left > 0 ? `Generate in ${clock(left)}` : "Generate";
  return (
    <button id="generate" type="submit" class="button primary big" aria-disabled={busy || left > 0 ? true : undefined} aria-keyshortcuts="Control+Enter Meta+Enter">
      {label}
    </button>
  );
}
