// A task's event stream by `fetch`: EventSource cannot send the token. One call is one connection; whoever calls
// decides when to try again.
import { createParser } from "eventsource-parser";
import { renew, token } from "../state/session";

export interface StreamEvent {
  event: string;
  id: string | null;
  data: unknown;
}

export type StreamEnd =
  /** The server closed it after saying everything, or to make us come back. */
  | "closed"
  /** No connection, a refusal, silence, or a cut. */
  | "failed"
  /** We left. */
  | "left";

/** The server sends a comment every 10 s; two missed ones and some mean that nobody is there. */
const SILENCE_MS = 25_000;
const MAX_EVENT_CHARS = 1_048_576;

export async function readStream(
  path: string,
  lastEventId: string,
  signal: AbortSignal,
  onOpen: () => void,
  onEvent: (event: StreamEvent) => void,
): Promise<StreamEnd> {
  const dead = new AbortController();
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  const alive = (): void => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => dead.abort(), SILENCE_MS);
  };
  try {
    alive();
    const response = await fetch(path, {
      headers: { Accept: "text/event-stream", "Last-Event-ID": lastEventId, Authorization: `Bearer ${token() ?? ""}` },
      signal: AbortSignal.any([signal, dead.signal]),
      credentials: "omit",
      cache: "no-store",
    });
    if (response.status === 401) await renew();
    if (!response.ok || !response.body) return "failed";
    onOpen();
    const parser = createParser({
      maxBufferSize: MAX_EVENT_CHARS,
      onEvent: ({ event, id, data }) => {
        const parsed = parse(data);
        if (parsed !== undefined) onEvent({ event: event ?? "message", id: id ?? null, data: parsed });
      },
      onError: (error) => {
        if (error.type === "max-buffer-size-exceeded") dead.abort();
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "closed";
      alive();
      parser.feed(value);
    }
  } catch {
    return signal.aborted ? "left" : "failed";
  } finally {
    clearTimeout(watchdog);
    dead.abort();
  }
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data);
  } catch {
    return undefined;
  }
}
