// One request and its outcome. It never throws: the four ways a request can end are values, so that a caller cannot
// forget the important one, which is "no answer": a write may then have happened, and must not be made again blindly.
import { noteServerTime } from "../state/clock";
import { noteDegraded } from "../state/degraded";
import { noteRateLimit } from "../state/ratelimit";
import { readProblem, type Problem } from "./problem";

export type Answer<T> =
  | { kind: "ok"; status: number; body: T; headers: Headers }
  /** 304: what we have is still true. */
  | { kind: "unchanged" }
  | { kind: "refused"; problem: Problem }
  /** No answer, or one that was cut: the request may or may not have arrived. */
  | { kind: "silent" };

export interface Ask {
  method?: "GET" | "POST";
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Every await across the network has a limit. */
  limitMs?: number;
}

const LIMIT_MS = 15_000;

/** Sends one request with this bearer (a token, or a pasted key) or none. */
export async function request<T>(path: string, bearer: string | null, ask: Ask = {}): Promise<Answer<T>> {
  const headers = new Headers(ask.headers);
  headers.set("Accept", "application/json, application/problem+json");
  if (bearer) headers.set("Authorization", `Bearer ${bearer}`);
  if (ask.body !== undefined) headers.set("Content-Type", "application/json");
  const limit = AbortSignal.timeout(ask.limitMs ?? LIMIT_MS);
  try {
    const response = await fetch(path, {
      method: ask.method ?? "GET",
      headers,
      body: ask.body === undefined ? null : JSON.stringify(ask.body),
      signal: ask.signal ? AbortSignal.any([ask.signal, limit]) : limit,
      credentials: "omit",
      // ETags are kept by hand: the browser's cache would hide a 304 and must not hold credits or prompts.
      cache: "no-store",
    });
    noteServerTime(response.headers);
    noteDegraded(response.headers);
    noteRateLimit(path, response.headers);
    if (response.status === 304) return { kind: "unchanged" };
    if (!response.ok) return { kind: "refused", problem: await readProblem(response) };
    return { kind: "ok", status: response.status, body: (await response.json()) as T, headers: response.headers };
  } catch {
    return { kind: "silent" };
  }
}
