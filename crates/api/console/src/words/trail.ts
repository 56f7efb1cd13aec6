// The history of a task, one line per event. A type that isn't known is shown as it is.
import type { TaskEvent } from "../api/types";
import { credits } from "../format/figures";
import { failure } from "./ends";
import type { Task } from "../api/types";

export function trailLine(event: TaskEvent, task: Task): string {
  switch (event.type) {
    case "created":
      return "Accepted";
    case "scheduled":
      return "Its turn came";
    case "submitted":
      return `Sent to ${task.provider ?? "the provider"}`;
    case "running":
      return "The provider began";
    case "post_processing":
      return "The provider is done; saving the video";
    case "succeeded":
      return "Ready";
    case "failed":
      return failure({ ...task, error_code: event.error_code ?? task.error_code }).sentence.replace(/\.$/, "");
    case "canceled":
      return "Canceled";
    case "requeued":
      return "Not accepted; it waits for another try";
    case "reconciling":
      return "The provider did not confirm; checking";
    case "cancel_requested":
      return "Cancel asked for";
    case "taken_over":
      return "Another worker took over";
    default:
      return event.type;
  }
}

/** What the event did to the credits; empty when it moved none. */
export function trailMoney(event: TaskEvent): string {
  if (!event.credits) return "";
  switch (event.type) {
    case "created":
      return `${credits(event.credits)} held`;
    case "succeeded":
      return `${credits(event.credits)} charged`;
    case "failed":
    case "canceled":
      return `${credits(event.credits)} back`;
    default:
      return credits(event.credits);
  }
}
