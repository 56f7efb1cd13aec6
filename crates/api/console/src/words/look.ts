// One table for how a task looks: label, icon, tone. A stage or status that isn't in it is shown by its code, neutrally.
import type { IconName } from "../ui/Icon";
import type { Task } from "../api/types";

export type Tone = "plain" | "run" | "ok" | "warn" | "bad" | "unsure" | "quiet";

export interface Look {
  label: string;
  icon: IconName;
  tone: Tone;
}

const STAGES: Record<string, Look> = {
  queued: { label: "Waiting", icon: "clock", tone: "plain" },
  dispatching: { label: "Sending", icon: "arrow", tone: "run" },
  provider_queued: { label: "Sent", icon: "arrow", tone: "run" },
  provider_generating: { label: "Generating", icon: "ring", tone: "run" },
  reconciling: { label: "Checking", icon: "question", tone: "unsure" },
  fetching_output: { label: "Saving", icon: "down", tone: "run" },
  canceling: { label: "Canceling", icon: "minus", tone: "warn" },
};

const ENDS: Record<string, Look> = {
  SUCCEEDED: { label: "Ready", icon: "check", tone: "ok" },
  FAILED: { label: "Failed", icon: "cross", tone: "bad" },
  CANCELED: { label: "Canceled", icon: "slash", tone: "quiet" },
};

export const SENDING: Look = { label: "Sending", icon: "arrow", tone: "run" };

export function lookOf(task: Pick<Task, "status" | "stage">): Look {
  return ENDS[task.status] ?? STAGES[task.stage] ?? { label: task.stage === "done" ? task.status : task.stage, icon: "dot", tone: "plain" };
}
