// What is happening to a task that isn't over, in one or two sentences. Nothing is guessed: a figure that is unknown
// makes a shorter sentence.
import type { Model, Task } from "../api/types";
import { credits } from "../format/figures";
import { clock, range, timeOfDay, usual } from "../format/time";
import { waitSentence } from "./waits";

/** A generation this much longer than usual is late. */
const LATE_FACTOR = 2;
const LATE_AT_LEAST_MS = 5_000;

export interface Moment {
  now: number;
  /** When the provider began with it; null when unknown. */
  generatingSince: number | null;
  model: Model | undefined;
}

/** The sentence in large type. */
export function headline(task: Task, moment: Moment): string {
  switch (task.stage) {
    case "queued": {
      const place = task.queue_position === null ? "In line." : `Number ${task.queue_position} in line.`;
      return task.eta ? `${place} ${startsIn(task.eta)}` : place;
    }
    case "dispatching":
      return "Sending to the provider.";
    case "provider_queued":
      return "Accepted, waiting at the provider.";
    case "provider_generating":
      return generating(task, moment);
    case "reconciling":
      return "The provider did not confirm this job. We are checking and will not send it twice.";
    case "fetching_output":
      return "Saving your video.";
    case "canceling":
      return "Canceling, up to 10 s.";
    default:
      return `In progress (${task.stage}).`;
  }
}

/** The sentence below it; empty when there is nothing to add. */
export function detail(task: Task, { now }: Moment): string {
  if (task.stage === "queued") return waitSentence(task, now);
  if (task.stage === "reconciling") {
    const end = task.deadline_at ? ` until ${timeOfDay(task.deadline_at)} at most` : "";
    return `${credits(task.credits.held)} ${task.credits.held === 1 ? "stays" : "stay"} held${end}.`;
  }
  return "";
}

export const startsIn = (eta: { from_seconds: number; to_seconds: number }): string =>
  eta.to_seconds === 0 ? "Starts at once." : `Starts in about ${range(eta.from_seconds, eta.to_seconds)}.`;

function generating(task: Task, moment: Moment): string {
  if (isLate(moment)) {
    const stops = task.deadline_at ? ` Stops at ${timeOfDay(task.deadline_at)}; credits then return.` : "";
    return `Longer than usual.${stops}`;
  }
  if (task.progress !== null) {
    const left = task.eta ? `, about ${clock(task.eta.to_seconds)} left` : "";
    return `Generating ${task.progress}%${left}.`;
  }
  return moment.model ? `Generating, usually ${usual(moment.model.usual_duration_ms)}.` : "Generating.";
}

function isLate({ model, generatingSince, now }: Moment): boolean {
  if (!model || generatingSince === null) return false;
  return now - generatingSince > Math.max(model.usual_duration_ms * LATE_FACTOR, LATE_AT_LEAST_MS);
}
