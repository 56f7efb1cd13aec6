// What the video in the form would cost and whether it would start, asked of the real admission by a dry run. It is
// asked once when model, length or resolution settle; the prompt changes neither price nor place.
import { effect, signal } from "@preact/signals";
import { dryRun } from "../api/routes";
import type { Quote } from "../api/types";
import { models } from "./account";
import { draft, toRequest } from "./draft";
import { roomForDryRun } from "./ratelimit";
import { phase } from "./session";

export type Quoting =
  /** Not asked, or not answered: the price from the list still stands. */
  | { kind: "none" }
  | { kind: "checking" }
  | { kind: "answered"; quote: Quote };

export const quoting = signal<Quoting>({ kind: "none" });

const SETTLE_MS = 400;
/** An empty prompt would be refused for itself, which is not the question here. */
const ANY_PROMPT = "quote";

/** Starts asking; the answer stops it. */
export function startQuoting(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let asked = new AbortController();
  let last = "";
  const stop = effect(() => {
    const { model, seconds, resolution } = draft.value;
    const wanted = `${model} ${seconds} ${resolution}`;
    if (phase.value !== "connected" || !models.value.some((offered) => offered.model === model) || wanted === last) return;
    last = wanted;
    clearTimeout(timer);
    asked.abort();
    asked = new AbortController();
    if (!roomForDryRun()) {
      quoting.value = { kind: "none" };
      return;
    }
    quoting.value = { kind: "checking" };
    timer = setTimeout(() => void ask(asked.signal), SETTLE_MS);
  });
  return () => {
    stop();
    clearTimeout(timer);
    asked.abort();
  };
}

async function ask(signal: AbortSignal): Promise<void> {
  const from = draft.peek();
  const request = toRequest({ ...from, prompt: from.prompt.trim() ? from.prompt : ANY_PROMPT, seed: "", negative: "" });
  const answer = await dryRun(request, signal);
  if (signal.aborted) return;
  quoting.value = answer.kind === "ok" ? { kind: "answered", quote: answer.body } : { kind: "none" };
}
