// How much room the limits of submitting have left. Asking what a video would cost is a courtesy, and must not eat
// the last requests that the user needs for making one.
let left = Infinity;
let resetsAt = 0;

/** Reads `RateLimit: "user";r=3;t=20, ...`; the tightest policy counts. */
export function noteRateLimit(path: string, headers: Headers): void {
  const header = headers.get("RateLimit");
  if (!header || !path.startsWith("/generations")) return;
  left = Infinity;
  for (const item of header.split(",")) {
    const remaining = Number(/;\s*r=(\d+)/.exec(item)?.[1] ?? NaN);
    if (!(remaining < left)) continue;
    left = remaining;
    resetsAt = performance.now() + Number(/;\s*t=(\d+)/.exec(item)?.[1] ?? 0) * 1_000;
  }
}

/** Whether a dry run may be sent now: not when 2 requests or fewer are left. */
export const roomForDryRun = (): boolean => left > 2 || performance.now() >= resetsAt;
