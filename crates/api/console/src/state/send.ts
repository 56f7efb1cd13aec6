// Sending a video on its way, exactly once. The Idempotency-Key is written to session storage before the request
// leaves, so that an answer that never came, or a reload in between, is followed by the same request under the same
// key: the server then says what became of it instead of making a second video.
import { signal } from "@preact/signals";
import type { Problem } from "../api/problem";
import { submit } from "../api/routes";
import type { Accepted, GenerationRequest, Task } from "../api/types";
import { refreshCredits } from "./account";
import { alertNow, announce } from "./announce";
import { fromNow, type Until } from "./countdown";
import { noteSent } from "./draft";
import { addRecent } from "./recent";
import { user } from "./session";
import { box } from "./storage";
import { serverNow } from "./clock";
import { keep } from "./tasks";

interface Pending {
  key: string;
  /** Only for the same user is the request the same. */
  user: string | null;
  request: GenerationRequest;
}

export type Sending =
  | { kind: "idle" }
  | { kind: "sending"; request: GenerationRequest }
  /** No answer yet to a request that may have arrived. */
  | { kind: "checking"; request: GenerationRequest }
  /** 503: trying again by itself at `until`. */
  | { kind: "busy"; request: GenerationRequest; until: Until }
  /** `until` is when a limit lets the next one through; null when time alone doesn't help. */
  | { kind: "refused"; request: GenerationRequest; problem: Problem; until: Until | null };

const TRIES_WHEN_BUSY = 3;
const BUSY_MS = 5_000;
const FIRST_WAIT_MS = 1_000;
const LAST_WAIT_MS = 30_000;
/** A fast server answers between the two clicks of a double click, which still means one video. */
const DOUBLE_CLICK_MS = 800;

const stored = box<Pending>("pending");
export const sending = signal<Sending>({ kind: "idle" });
/** The task on the stage of the Create page. */
export const shown = signal<string | null>(null);

/** The request that made a task, for those made on this page: support asks for it. */
export const requestIds = new Map<string, string>();

/** A refused send whose key may be used again: the server was busy, and nothing else changed. */
let reusable: Pending | null = null;

let lastAccepted = { body: "", at: -Infinity };

export const underWay = (): boolean => ["sending", "checking", "busy"].includes(sending.peek().kind);

/** Sends a request, unless one is under way or this is the second half of a double click. */
export function send(request: GenerationRequest): void {
  const body = JSON.stringify(request);
  if (underWay() || (body === lastAccepted.body && performance.now() < lastAccepted.at + DOUBLE_CLICK_MS)) return;
  const again = reusable && JSON.stringify(reusable.request) === body;
  const pending = again && reusable ? reusable : { key: newKey(), user: user.peek(), request };
  stored.write(pending);
  sending.value = { kind: "sending", request };
  void deliver(pending);
}

/** After a reload: asks what became of a send that was never answered. */
export function resume(): void {
  const pending = stored.read();
  if (!pending || pending.user !== user.peek() || underWay()) return;
  sending.value = { kind: "checking", request: pending.request };
  void deliver(pending);
}

/** Takes the refusal away, once what it spoke of has changed. */
export function clearRefusal(): void {
  if (sending.peek().kind === "refused") sending.value = { kind: "idle" };
}

/** For the next user: nothing sent, nothing shown. What is under way ends under its own key. */
export function forgetSends(): void {
  reusable = null;
  lastAccepted = { body: "", at: -Infinity };
  shown.value = null;
  sending.value = { kind: "idle" };
}

async function deliver(pending: Pending): Promise<void> {
  const { request } = pending;
  let waitMs = FIRST_WAIT_MS;
  let busy = 0;
  let unanswered = sending.peek().kind === "checking";
  for (;;) {
    // Somebody else may have connected during the wait or the request: it must neither be sent in their name, which
    // would charge them for it, nor be theirs to see.
    if (pending.user !== user.peek()) return;
    const answer = await submit(request, pending.key);
    if (pending.user !== user.peek()) return;
    if (answer.kind === "ok") {
      requestIds.set(answer.body.task_id, answer.headers.get("X-Request-Id") ?? "");
      return accepted(answer.body, request);
    }
    if (answer.kind === "silent") unanswered = true;
    if (answer.kind === "refused") {
      const { problem } = answer;
      const { status, retryAfterMs } = problem;
      // A twin of ours is still being written, or the server stumbled: what became of it shows under the same key.
      const unsure = problem.code === "idempotency_in_progress" || (status >= 500 && status !== 503);
      if (status === 503 && busy < TRIES_WHEN_BUSY) {
        busy += 1;
        const ms = retryAfterMs ?? BUSY_MS;
        sending.value = { kind: "busy", request, until: fromNow(ms) };
        alertNow("The service is busy. Nothing was charged.");
        await wait(ms);
        continue;
      }
      if (status === 401) return loggedOut(unanswered);
      if (!unsure || busy >= TRIES_WHEN_BUSY) return refused(pending, problem);
      if (status >= 500) busy += 1;
      waitMs = Math.max(waitMs, retryAfterMs ?? 0);
    }
    sending.value = { kind: "checking", request };
    await wait(waitMs);
    waitMs = Math.min(LAST_WAIT_MS, waitMs * 2);
  }
}

function accepted(answer: Accepted, request: GenerationRequest): void {
  stored.write(null);
  reusable = null;
  lastAccepted = { body: JSON.stringify(request), at: performance.now() };
  noteSent(request.prompt);
  keep(provisional(answer, request));
  addRecent(answer.task_id);
  shown.value = answer.task_id;
  sending.value = { kind: "idle" };
  announce("Accepted.");
  void refreshCredits();
}

/** The session ended under way. What may have arrived is asked for again when the same user is back. */
function loggedOut(unanswered: boolean): void {
  if (!unanswered) stored.write(null);
  sending.value = { kind: "idle" };
}

function refused(pending: Pending, problem: Problem): void {
  stored.write(null);
  reusable = problem.status >= 500 ? pending : null;
  const until = problem.status === 429 && problem.retryAfterMs !== null ? fromNow(problem.retryAfterMs) : null;
  sending.value = { kind: "refused", request: pending.request, problem, until };
  if (problem.status === 402) void refreshCredits();
}

/** What is known of a task before it was read: older than anything the server says. */
function provisional(answer: Accepted, request: GenerationRequest): Task {
  return {
    task_id: answer.task_id,
    status: answer.status,
    stage: "queued",
    progress: null,
    queue_position: null,
    eta: null,
    wait_reason: null,
    wait_detail: null,
    model: request.model,
    attempt_no: 0,
    output_asset_id: null,
    output_url: null,
    error_code: null,
    error_message: null,
    inputs: request,
    credits: { quoted: answer.credits_held, held: answer.credits_held, charged: 0, released: 0 },
    deadline_at: null,
    version: 0,
    poll_after_ms: answer.poll_after_ms,
    created_at: new Date(serverNow()).toISOString(),
  };
}

/** 128 random bits. `randomUUID` exists on secure origins only, and a first try may run on a plain one. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Waits, or less when the network comes back. */
function wait(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    addEventListener("online", done);
  });
}
