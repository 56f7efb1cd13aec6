// The caller, the models on offer and the credits: read at start, and the credits again whenever a task moved money.
import { computed, signal } from "@preact/signals";
import { getCredits, getMe, getModels } from "../api/routes";
import type { CreditBalance, Me, Model } from "../api/types";
import { phase } from "./session";

export const me = signal<Me | null>(null);
export const models = signal<Model[]>([]);
export const credits = signal<CreditBalance | null>(null);
/** True when the models could not be read: the form then says so and offers another try. */
export const modelsFailed = signal(false);

export const modelByName = computed(() => new Map(models.value.map((model) => [model.model, model])));

export async function loadAccount(): Promise<void> {
  if (phase.peek() !== "connected") return;
  const [who, offered] = await Promise.all([getMe(), getModels()]);
  if (who.kind === "ok") {
    me.value = who.body;
    credits.value = who.body.credits;
  }
  if (offered.kind === "ok") models.value = offered.body.items;
  modelsFailed.value = offered.kind !== "ok" && models.peek().length === 0;
}

let refreshing = false;
let again = false;

/** Reads the credits; calls in quick succession become one read now and one after it. */
export async function refreshCredits(): Promise<void> {
  again = refreshing;
  if (refreshing) return;
  refreshing = true;
  const answer = await getCredits();
  if (answer.kind === "ok") credits.value = answer.body;
  refreshing = false;
  if (again) await refreshCredits();
}

/** Credits a second of a model at a resolution (its default where none is named); null when it has no such price. */
export const rateOf = (model: Model, resolution: string | null | undefined): number | null =>
  model.price_per_second[resolution || model.default_resolution] ?? null;

/** Price of a whole video. */
export function priceOf(model: Model, seconds: number, resolution: string | null | undefined): number | null {
  const rate = rateOf(model, resolution);
  return rate === null ? null : rate * seconds;
}
