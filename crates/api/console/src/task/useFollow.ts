// Follows a task while a page shows it, speaks its stages, and puts its progress into the tab's title.
import { effect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { modelByName, refreshCredits } from "../state/account";
import { announce } from "../state/announce";
import { serverNow } from "../state/clock";
import { follow } from "../state/follow";
import { isTerminal, taskSignal, trailSignal } from "../state/tasks";
import { ending } from "../words/ends";
import { headline } from "../words/live";
import { lookOf } from "../words/look";
import { generatingSince } from "../words/stages";
import type { Task } from "../api/types";

const QUARTERS = [25, 50, 75];

export function useFollow(id: string | null): void {
  useEffect(() => {
    if (id === null) return;
    const stopFollowing = follow(id);
    const stopNarrating = narrate(id);
    return () => {
      stopFollowing();
      stopNarrating();
      document.title = "AIVideo";
    };
  }, [id]);
}

/** Says each stage once, each quarter once, and the end: about ten sentences for a video, never a stream of numbers. */
function narrate(id: string): () => void {
  const held = taskSignal(id);
  let stage = held.peek()?.stage ?? null;
  let quarter = 0;
  return effect(() => {
    const task = held.value;
    if (!task) return;
    document.title = titleOf(task);
    if (stage !== null && task.stage !== stage) {
      announce(isTerminal(task) ? ending(task) : headline(task, momentOf(task)));
      if (isTerminal(task)) void refreshCredits();
    }
    stage = task.stage;
    const passed = QUARTERS.filter((mark) => (task.progress ?? 0) >= mark).at(-1) ?? 0;
    if (passed > quarter && !isTerminal(task)) {
      quarter = passed;
      announce(`${passed}%`);
    }
  });
}

/** "42% - AIVideo" while it is generated, else the status. */
function titleOf(task: Task): string {
  const word = task.progress !== null && !isTerminal(task) ? `${task.progress}%` : lookOf(task).label;
  return `${word} - AIVideo`;
}

/** What the sentences about a live task need besides the task. */
export const momentOf = (task: Task) => ({
  now: serverNow(),
  generatingSince: generatingSince(trailSignal(task.task_id).peek()),
  model: modelByName.peek().get(task.model),
});
