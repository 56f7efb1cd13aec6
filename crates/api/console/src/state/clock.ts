// Time. Instants from the server are compared with the server's clock, not with this computer's, which may be wrong
// by minutes; waits are counted on the monotonic clock, which nobody can set.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** Server minus local, in milliseconds. The Date header has whole seconds, so small differences are ignored. */
let skewMs = 0;

export function noteServerTime(headers: Headers): void {
  const date = Date.parse(headers.get("Date") ?? "");
  if (Number.isNaN(date)) return;
  const difference = date + 500 - Date.now();
  skewMs = Math.abs(difference) > 2_000 ? difference : 0;
}

/** The server's time now, in milliseconds since 1970. */
export const serverNow = (): number => Date.now() + skewMs;

/** Counts up once a second while somebody looks. */
const beat = signal(0);
let watchers = 0;
let timer: ReturnType<typeof setInterval> | undefined;

/** Makes the calling component render every second while `active`. */
export function useSeconds(active: boolean): void {
  useEffect(() => {
    if (!active) return;
    if (watchers++ === 0) timer = setInterval(() => beat.value++, 1_000);
    return () => {
      if (--watchers === 0) clearInterval(timer);
    };
  }, [active]);
  if (active) void beat.value;
}
