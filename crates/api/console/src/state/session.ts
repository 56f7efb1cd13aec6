// Who is at the page. A pasted key is swapped for a 15-minute token; the key itself stays in memory only, for as long
// as the page is open, so that the token can be renewed at 80 % of its life. A demo needs no key at all.
import { computed, signal } from "@preact/signals";
import { request, type Answer } from "../api/http";
import type { BrowserToken } from "../api/types";
import type { Problem } from "../api/problem";
import { serverNow } from "./clock";
import { box } from "./storage";

interface Session {
  token: string;
  user: string;
  expiresAt: number;
  scopes: string[];
  /** Where a new token comes from when there is no key. */
  demo: boolean;
}

export type Phase =
  /** Looking for a stored token or a demo. */
  | "starting"
  | "connected"
  | "disconnected"
  /** The token ran out and nothing here can renew it. */
  | "ended";

const TTL_SECONDS = 900;
const stored = box<Session>("session");
const session = signal<Session | null>(null);
export const phase = signal<Phase>("starting");
/** Whose page this is; it survives a session's end, to notice when somebody else connects. */
export const user = signal<string | null>(null);
export const mayCreate = computed(() => session.value?.scopes.includes("write") ?? false);

let key: string | null = null;
let renewal: ReturnType<typeof setTimeout> | undefined;
let renewing: Promise<boolean> | null = null;
/** Counts who came and went: a token that was asked for before that is nobody's any more. */
let comings = 0;

export const token = (): string | null => session.peek()?.token ?? null;

/** A demo gives its token to its own machine only, so nobody else is asked. */
const onLoopback = (): boolean => ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);

/** Finds a session without asking the user: the stored token, else a demo's. */
export async function start(): Promise<void> {
  const kept = stored.read();
  if (kept && kept.expiresAt > serverNow() + 5_000) return adopt(kept);
  if (onLoopback() && (await mint(null)).kind === "ok") return;
  phase.value = kept ? "ended" : "disconnected";
}

/** Swaps a pasted key for a token. */
export async function connect(pasted: string): Promise<Problem | "silent" | null> {
  comings += 1;
  const answer = await mint(pasted);
  if (answer.kind === "ok") {
    key = pasted;
    return null;
  }
  return answer.kind === "refused" ? answer.problem : "silent";
}

/** Forgets token and key. The draft stays. */
export function disconnect(): void {
  comings += 1;
  key = null;
  clearTimeout(renewal);
  stored.write(null);
  session.value = null;
  phase.value = "disconnected";
}

/** A new token in place of a refused or ageing one. False: only the user can go on. Concurrent callers share one. */
export function renew(): Promise<boolean> {
  renewing ??= renewOnce().finally(() => (renewing = null));
  return renewing;
}

async function renewOnce(): Promise<boolean> {
  const begun = comings;
  const demo = session.peek()?.demo ?? false;
  if (key === null && !demo) return end();
  const answer = await mint(key);
  if (begun !== comings) return false;
  if (answer.kind === "ok") return true;
  // The old token may still be good; only a plain no ends the session.
  if (answer.kind === "refused" && answer.problem.status < 500 && answer.problem.status !== 429) return end();
  plan(30_000);
  return false;
}

function end(): false {
  clearTimeout(renewal);
  key = null;
  phase.value = "ended";
  return false;
}

async function mint(bearer: string | null): Promise<Answer<BrowserToken>> {
  const body = { ttl_seconds: TTL_SECONDS, scopes: ["read", "write"] };
  const asked = comings;
  const answer = bearer
    ? await request<BrowserToken>("/browser-tokens", bearer, { method: "POST", body })
    : await request<BrowserToken>("/demo-token", null, { method: "POST" });
  if (asked !== comings) return { kind: "silent" };
  if (answer.kind === "ok") {
    const { token, expires_at, scopes, user_id } = answer.body;
    adopt({ token, user: user_id, expiresAt: Date.parse(expires_at), scopes, demo: bearer === null });
  }
  return answer;
}

function adopt(next: Session): void {
  session.value = next;
  stored.write(next);
  user.value = next.user;
  phase.value = "connected";
  plan((next.expiresAt - serverNow()) * 0.8);
}

function plan(inMs: number): void {
  clearTimeout(renewal);
  renewal = setTimeout(() => void atRenewal(), Math.max(1_000, inMs));
}

/** At 80 %: with a key or in a demo a new token comes; else the session goes on until the token is refused. */
async function atRenewal(): Promise<void> {
  const current = session.peek();
  if (!current) return;
  if (key !== null || current.demo) await renew();
  else if (current.expiresAt <= serverNow()) end();
  else plan(current.expiresAt - serverNow());
}
