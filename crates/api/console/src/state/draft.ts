// What is being written. It survives a reload, a lost session and every refusal; loading another task's inputs sets
// it aside instead of destroying it.
import { effect, signal } from "@preact/signals";
import type { GenerationRequest, Model, TaskInputs } from "../api/types";
import { models } from "./account";
import { box } from "./storage";

export interface Draft {
  prompt: string;
  negative: string;
  seed: string;
  model: string;
  seconds: number;
  resolution: string;
  aspect: string;
}

const EMPTY: Draft = { prompt: "", negative: "", seed: "", model: "", seconds: 5, resolution: "", aspect: "" };

const stored = box<Draft>("draft");
export const draft = signal<Draft>({ ...EMPTY, ...stored.read() });
/** A draft that gave way to a task's inputs; it can be brought back. */
export const setAside = signal<Draft | null>(null);
/** The prompt last sent: a draft that was sent already needs no keeping. */
let sentPrompt = "";

effect(() => stored.write(draft.value));

export function edit(changes: Partial<Draft>): void {
  draft.value = fit({ ...draft.peek(), ...changes }, models.peek());
}

/** Where the models came later than the draft, or changed. */
effect(() => {
  const fitted = fit(draft.peek(), models.value);
  if (JSON.stringify(fitted) !== JSON.stringify(draft.peek())) draft.value = fitted;
});

/** The draft with options that its model has: the nearest length, a known resolution and aspect. */
function fit(wanted: Draft, offered: Model[]): Draft {
  const model = offered.find((candidate) => candidate.model === wanted.model) ?? offered[0];
  if (!model) return wanted;
  const { min, max } = model.duration_seconds;
  return {
    ...wanted,
    model: model.model,
    seconds: Math.min(max, Math.max(min, wanted.seconds)),
    resolution: wanted.resolution in model.price_per_second ? wanted.resolution : model.default_resolution,
    aspect: model.aspect_ratios.includes(wanted.aspect) ? wanted.aspect : (model.aspect_ratios[0] ?? ""),
    negative: model.negative_prompt ? wanted.negative : "",
    seed: model.seed ? wanted.seed : "",
  };
}

export function noteSent(prompt: string): void {
  sentPrompt = prompt;
}

/** Puts a task's inputs into the form. */
export function loadInputs(inputs: TaskInputs, model: string): void {
  const now = draft.peek();
  if (now.prompt.trim() && now.prompt !== inputs.prompt && now.prompt !== sentPrompt) setAside.value = now;
  edit({
    prompt: inputs.prompt,
    negative: inputs.negative_prompt ?? "",
    seed: inputs.seed == null ? "" : String(inputs.seed),
    model,
    seconds: inputs.duration_seconds,
    resolution: inputs.resolution ?? "",
    aspect: inputs.aspect_ratio ?? "",
  });
}

export function bringBack(): void {
  const kept = setAside.peek();
  if (kept) draft.value = fit(kept, models.peek());
  setAside.value = null;
}

/** The body of a submit: what was left empty is not sent. A seed that is no number goes as it is, to be refused there. */
export function toRequest(from: Draft): GenerationRequest {
  const request: GenerationRequest = { model: from.model, prompt: from.prompt, duration_seconds: from.seconds };
  if (from.negative.trim()) request.negative_prompt = from.negative;
  if (from.resolution) request.resolution = from.resolution;
  if (from.aspect) request.aspect_ratio = from.aspect;
  if (from.seed.trim()) request.seed = Number(from.seed);
  return request;
}
