// Waits that the server asked for, on the monotonic clock: a computer whose clock jumps still waits as long as it must.
import { useEffect, useState } from "preact/hooks";

/** A moment on the monotonic clock. */
export type Until = number;

export const fromNow = (ms: number): Until => performance.now() + ms;

/** Whole seconds left, rounded up, rendered as they pass; 0 when over, and for null. */
export function useCountdown(until: Until | null): number {
  const left = until === null ? 0 : Math.max(0, Math.ceil((until - performance.now()) / 1_000));
  const [, render] = useState(0);
  useEffect(() => {
    if (until === null) return;
    const timer = setInterval(() => {
      render((n) => n + 1);
      if (performance.now() >= until) clearInterval(timer);
    }, 250);
    return () => clearInterval(timer);
  }, [until]);
  return left;
}
