// Why a task waits, in a sentence. A figure that the server did not give drops the part that needs it.
import type { Task } from "../api/types";
import { clock, timeOfDay } from "../format/time";

const OTHER = "Waiting for a place.";
const MAX_TRIES = 3;

export function waitSentence(task: Task, now: number): string {
  const { used, limit, until } = task.wait_detail ?? {};
  const counted = (sentence: (used: number, limit: number) => string): string =>
    used != null && limit != null ? sentence(used, limit) : OTHER;
  switch (task.wait_reason) {
    case "user_concurrency":
      return counted((u, l) => `${u} of your ${l} places are running. This starts when one ends.`);
    case "tenant_concurrency":
      return counted((u, l) => `Your team has ${u} of ${l} running.`);
    case "model_concurrency":
      return counted((u, l) => `${task.model} is full, ${u} of ${l}.`);
    case "provider_concurrency":
      return counted((u, l) => `The provider is full, ${u} of ${l}.`);
    case "provider_rate":
      return "Sending as fast as the provider allows.";
    case "provider_paused":
      return `${task.model} is paused by the operator. Your place is kept.`;
    case "breaker_open":
      return `The provider is failing. ${until ? `Next try at ${timeOfDay(until)}. ` : ""}Your place is kept.`;
    case "provider_backoff":
      return until ? `The provider asked us to wait until ${timeOfDay(until)}.` : "The provider asked us to wait.";
    case "control_unavailable":
      return "Starts are on hold while we recover. Place and credits are safe.";
    case "not_before": {
      const next = Math.min(MAX_TRIES, (task.tries ?? task.attempt_no) + 1);
      const wait = until ? ` in ${clock(Math.max(0, Math.ceil((Date.parse(until) - now) / 1_000)))}` : "";
      return `The last try was not accepted. Try ${next} of ${MAX_TRIES}${wait}.`;
    }
    default:
      return OTHER;
  }
}
