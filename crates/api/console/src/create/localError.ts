// What the page itself can say about the draft, before anything is sent.
import { signal } from "@preact/signals";

export const localError = signal<{ field: string; message: string } | null>(null);
