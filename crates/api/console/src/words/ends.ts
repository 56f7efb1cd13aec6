// How a task ended, and what became of the credits. The money is read from the figures and never assumed.
import type { Task, TaskCredits } from "../api/types";
import { credits } from "../format/figures";
import { duration, timeOfDay } from "../format/time";

/** Which way on fits a failure best. */
export type WayOn = "edit" | "other-model" | "again";

export function failure(task: Task): { sentence: string; way: WayOn } {
  const tries = Math.max(1, task.tries ?? task.attempt_no);
  switch (task.error_code) {
    case "invalid_input":
      return {
        sentence: task.error_message ? `${task.model} can't use these settings: ${bare(task.error_message)}.` : `${task.model} can't use these settings.`,
        way: "edit",
      };
    case "moderated_input":
      return { sentence: "The provider's safety check refused the prompt.", way: "edit" };
    case "moderated_output":
      return { sentence: "The provider's safety check withheld the result.", way: "edit" };
    case "provider_auth":
    case "region_blocked":
    case "provider_credit":
      return { sentence: `${task.model} is unavailable; the fault is ours.`, way: "other-model" };
    case "rate_limited":
    case "concurrency_full":
    case "overloaded":
      return { sentence: `The provider was too busy in all ${tries} tries.`, way: "again" };
    case "provider_internal":
    case "provider_lost":
      return { sentence: "The provider failed while generating.", way: "again" };
    case "model_gone":
      return { sentence: `${task.model} was withdrawn.`, way: "other-model" };
    case "deadline_exceeded":
      return {
        sentence: task.deadline_at ? `Not ready by ${timeOfDay(task.deadline_at)}, so we stopped.` : "Not ready in time, so we stopped.",
        way: "again",
      };
    case "unconfirmed":
      return { sentence: "The provider never confirmed this job. An operator was told.", way: "again" };
    case "bad_output":
      return { sentence: "The provider's file does not play.", way: "again" };
    default:
      return { sentence: `It failed (${task.error_code ?? "unknown"}).`, way: "again" };
  }
}

/** What became of the credits, in the task's own figures. */
export function settled({ charged, released, held }: TaskCredits): string {
  const parts: string[] = [];
  if (charged > 0) parts.push(`${credits(charged)} charged.`);
  if (released > 0) parts.push(`${credits(released)} ${are(released)} back.`);
  if (held > 0) parts.push(`${credits(held)} ${are(held)} still held.`);
  return parts.length > 0 ? parts.join(" ") : "Nothing was charged.";
}

/** The whole sentence of an end, as it is shown and said. */
export function ending(task: Task): string {
  const money = settled(task.credits);
  switch (task.status) {
    case "SUCCEEDED": {
      const took = task.ended_at ? Date.parse(task.ended_at) - Date.parse(task.created_at) : null;
      return `${took === null ? "Ready." : `Ready in ${duration(took)}.`} ${money}`;
    }
    case "CANCELED":
      return `Canceled. ${money}`;
    default:
      return `${failure(task).sentence} ${money}`;
  }
}

const are = (n: number): string => (n === 1 ? "is" : "are");

const bare = (text: string): string => text.replace(/\.\s*$/, "");
