// Follows one task to its end. Two loops share the work: the stream says that something changed, the reader fetches
// what it now is. While the stream is down the reader goes by the clock, so nothing waits for a connection.
// There is one stream in a visible tab: HTTP/1.1 has six connections, and other tabs need some.
import { signal } from "@preact/signals";
import { getTask } from "../api/routes";
import { readStream, type StreamEvent } from "../api/stream";
import type { ProgressEvent, Task, TaskEvent } from "../api/types";
import { applyEvent, applyProgress, isTerminal, keep, taskSignal, trailSignal } from "./tasks";

export type Liveness =
  /** Nothing is followed. */
  | { kind: "idle" }
  | { kind: "live" }
  /** No stream: asking every so many milliseconds. */
  | { kind: "polling"; everyMs: number };

export const liveness = signal<Liveness>({ kind: "idle" });
/** Ids that answered 404 or 403: as far as this user goes they don't exist. */
export const missing = signal<ReadonlySet<string>>(new Set());

const FIRST_BACKOFF_MS = 1_000;
const RETRY_WHILE_POLLING_MS = 30_000;
const FAILURES_BEFORE_POLLING = 2;
const HIDDEN_MS = 30_000;
const DEFAULT_POLL_MS = 2_000;
/** Between two reads in a row, so that a slow cache is not hammered. */
const BREATH_MS = 50;

/** Starts following; the answer stops it. */
export function follow(id: string): () => void {
  const follower = new Follower(id);
  follower.run();
  return () => follower.stop();
}

class Follower {
  private readonly left = new AbortController();
  private connection = new AbortController();
  private failures = 0;
  private live = false;
  private etag: string | null = null;
  /** Set when the reader has to fetch; the reader clears it. */
  private behind = true;
  private wakeReader: () => void = () => {};
  private wakeStream: () => void = () => {};
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly id: string) {}

  run(): void {
    document.addEventListener("visibilitychange", this.onVisibility);
    window.addEventListener("online", this.onOnline);
    void this.readLoop();
    void this.streamLoop();
  }

  stop(): void {
    this.left.abort();
    this.connection.abort();
    clearTimeout(this.hiddenTimer);
    document.removeEventListener("visibilitychange", this.onVisibility);
    window.removeEventListener("online", this.onOnline);
    this.wakeReader();
    this.wakeStream();
    liveness.value = { kind: "idle" };
  }

  private get task(): Task | null {
    return taskSignal(this.id).peek();
  }

  private get ended(): boolean {
    return this.task !== null && isTerminal(this.task);
  }

  private get lastEvent(): TaskEvent | undefined {
    return trailSignal(this.id).peek().at(-1);
  }

  /** The newest version that anything here has named: no answer may be older. */
  private get seenVersion(): number {
    return Math.max(this.lastEvent?.version ?? 0, this.task?.version ?? 0);
  }

  private get over(): boolean {
    return this.left.signal.aborted || missing.peek().has(this.id);
  }

  /** Fetches the snapshot whenever it is behind, or by the clock when only asking can tell. */
  private async readLoop(): Promise<void> {
    while (!this.over) {
      this.behind = false;
      const answer = await getTask(this.id, { etag: this.etag, seenVersion: this.seenVersion, signal: this.left.signal });
      if (this.over) break;
      if (answer.kind === "ok") {
        this.etag = answer.headers.get("ETag");
        keep(answer.body);
        // The stream may have been faster than this answer.
        if (this.seenVersion > (this.task?.version ?? 0)) this.behind = true;
      } else if (answer.kind === "refused" && [403, 404].includes(answer.problem.status)) {
        missing.value = new Set([...missing.peek(), this.id]);
        break;
      }
      const failed = answer.kind === "silent" || answer.kind === "refused";
      const askedToWait = answer.kind === "refused" ? (answer.problem.retryAfterMs ?? 0) : 0;
      const everyMs = Math.max(250, this.task?.poll_after_ms ?? DEFAULT_POLL_MS, askedToWait);
      if (!this.live && this.failures >= FAILURES_BEFORE_POLLING) this.show({ kind: "polling", everyMs });
      if (this.behind && !failed) {
        await this.sleep(BREATH_MS, "reader");
        continue;
      }
      const ended = this.ended && !failed;
      if (ended) {
        liveness.value = { kind: "idle" };
        // One more look at the stream completes the trail.
        this.wakeStream();
      }
      // Position and time left change without an event; else a live stream says all there is to say.
      const moving = this.task?.stage === "queued" || this.task?.stage === "provider_generating";
      const byTheClock = !ended && (failed || !this.live || moving);
      await this.sleep(byTheClock ? everyMs : null, "reader");
    }
  }

  /** Keeps the stream open until the task is over; comes back sooner at first, then less and less often. */
  private async streamLoop(): Promise<void> {
    let backoffMs = FIRST_BACKOFF_MS;
    let looksAfterEnd = 0;
    while (!this.over) {
      if (document.hidden) {
        await this.sleep(null, "stream");
        continue;
      }
      this.connection = new AbortController();
      const end = await readStream(
        `/tasks/${encodeURIComponent(this.id)}/events`,
        // From 0 the whole history is replayed: it becomes the trail.
        String(this.lastEvent?.version ?? 0),
        AbortSignal.any([this.left.signal, this.connection.signal]),
        () => {
          this.live = true;
          this.show({ kind: "live" });
        },
        (event) => {
          this.failures = 0;
          backoffMs = FIRST_BACKOFF_MS;
          this.take(event);
        },
      );
      this.live = false;
      if (this.over) break;
      if (this.lastEvent && isTerminal(this.lastEvent)) break;
      if (this.ended && ++looksAfterEnd === 2) break;
      if (end === "left") continue;
      this.failures += 1;
      if (this.failures >= FAILURES_BEFORE_POLLING) {
        this.show({ kind: "polling", everyMs: this.task?.poll_after_ms ?? DEFAULT_POLL_MS });
      }
      // Between two connections the reader must not sleep: an event may have been missed.
      this.wakeUp();
      await this.sleep(this.failures >= FAILURES_BEFORE_POLLING ? RETRY_WHILE_POLLING_MS : backoffMs, "stream");
      backoffMs = Math.min(RETRY_WHILE_POLLING_MS, backoffMs * 2);
    }
    if (!this.left.signal.aborted) liveness.value = { kind: "idle" };
  }

  private take({ event, data }: StreamEvent): void {
    if (event === "task") {
      if (applyEvent(data as TaskEvent)) this.wakeUp();
    } else if (event === "progress") {
      applyProgress(this.id, data as ProgressEvent);
    } else if (event === "snapshot") {
      keep(data as Task);
    }
  }

  private wakeUp(): void {
    this.behind = true;
    this.wakeReader();
  }

  private show(next: Liveness): void {
    if (this.left.signal.aborted || this.ended) return;
    const now = liveness.peek();
    if (now.kind === next.kind && (now.kind !== "polling" || next.kind !== "polling" || now.everyMs === next.everyMs)) return;
    liveness.value = next;
  }

  /** Waits so long, or for ever with null, or until woken. */
  private sleep(ms: number | null, who: "reader" | "stream"): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === null ? undefined : setTimeout(resolve, ms);
      const wake = (): void => {
        clearTimeout(timer);
        resolve();
      };
      if (who === "reader") this.wakeReader = wake;
      else this.wakeStream = wake;
      if (this.left.signal.aborted) wake();
    });
  }

  /** A hidden tab gives its connection back after 30 s; a tab that is shown again catches up at once. */
  private readonly onVisibility = (): void => {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = setTimeout(() => this.connection.abort(), HIDDEN_MS);
    } else {
      this.wakeUp();
      this.wakeStream();
    }
  };

  private readonly onOnline = (): void => {
    this.wakeUp();
    this.wakeStream();
  };
}
