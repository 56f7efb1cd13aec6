// What the server says is degraded, from the newest answer. One banner shows it; nothing is disabled because of it.
import { signal } from "@preact/signals";

export const degraded = signal<string[]>([]);

export function noteDegraded(headers: Headers): void {
  const parts = (headers.get("AIVideo-Degraded") ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean);
  if (parts.join() !== degraded.peek().join()) degraded.value = parts;
}
