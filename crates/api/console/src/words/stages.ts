// How long each of the four steps took, from the events. A task that was tried again adds up its rounds.
import type { TaskEvent } from "../api/types";

export type StepName = "Queued" | "Sent" | "Generating" | "Saving";

export interface Step {
  name: StepName;
  /** Milliseconds spent so far. */
  ms: number;
  state: "ahead" | "now" | "past";
}

const STEPS: StepName[] = ["Queued", "Sent", "Generating", "Saving"];

export function steps(trail: TaskEvent[], stage: string, now: number): Step[] {
  const spent = new Map<StepName, number>();
  const sawGenerating = trail.some((event) => event.stage === "provider_generating");
  const over = stage === "done";
  trail.forEach((event, i) => {
    const name = stepOf(event, over && !sawGenerating);
    if (!name) return;
    const next = trail[i + 1];
    const until = next ? Date.parse(next.at) : over ? Date.parse(event.at) : now;
    spent.set(name, (spent.get(name) ?? 0) + Math.max(0, until - Date.parse(event.at)));
  });
  const current = stepOf({ stage }, false);
  return STEPS.map((name) => ({
    name,
    ms: spent.get(name) ?? 0,
    state: !over && name === current ? "now" : spent.has(name) ? "past" : "ahead",
  }));
}

/** The step that an event begins. A job that was never seen running spent its time at the provider all the same. */
function stepOf({ stage }: { stage: string }, neverSeenRunning: boolean): StepName | null {
  switch (stage) {
    case "queued":
      return "Queued";
    case "dispatching":
    case "reconciling":
      return "Sent";
    case "provider_queued":
      return neverSeenRunning ? "Generating" : "Sent";
    case "provider_generating":
    case "canceling":
      return "Generating";
    case "fetching_output":
      return "Saving";
    default:
      return null;
  }
}

/** When the provider began with the task that is generating now; null when the trail doesn't say. */
export function generatingSince(trail: TaskEvent[]): number | null {
  for (let i = trail.length - 1; i >= 0; i--) {
    const event = trail[i];
    if (event?.stage !== "provider_generating") continue;
    if (trail[i - 1]?.stage !== "provider_generating") return Date.parse(event.at);
  }
  return null;
}
