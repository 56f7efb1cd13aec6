// Every task this page has seen, one signal each. What arrives late loses: a task is ordered by (version, progress).
import { signal, type Signal } from "@preact/signals";
import type { ProgressEvent, Task, TaskEvent } from "../api/types";

const tasks = new Map<string, Signal<Task | null>>();
const trails = new Map<string, Signal<TaskEvent[]>>();
/** Tasks that ended while somebody was looking: only those play by themselves. */
export const endedHere = new Set<string>();

/** The signal of a task; null until something is known. */
export function taskSignal(id: string): Signal<Task | null> {
  let found = tasks.get(id);
  if (!found) tasks.set(id, (found = signal(null)));
  return found;
}

/** The events of a task seen so far, oldest first. */
export function trailSignal(id: string): Signal<TaskEvent[]> {
  let found = trails.get(id);
  if (!found) trails.set(id, (found = signal([])));
  return found;
}

/** Forgets every task: somebody else is at the page. */
export function forgetTasks(): void {
  tasks.clear();
  trails.clear();
  endedHere.clear();
}

export const isTerminal = (task: Pick<Task, "status">): boolean =>
  task.status === "SUCCEEDED" || task.status === "FAILED" || task.status === "CANCELED";

/** Takes a snapshot, unless something newer is here. List items don't carry the figures computed for one task. */
export function keep(next: Task, from: "snapshot" | "list" = "snapshot"): void {
  const held = taskSignal(next.task_id);
  const now = held.peek();
  if (now && isOlder(next, now)) return;
  if (now && isTerminal(next) && !isTerminal(now)) endedHere.add(next.task_id);
  const sameVersion = now !== null && now.version === next.version;
  held.value =
    from === "list" && sameVersion
      ? { ...next, queue_position: now.queue_position, eta: now.eta, wait_reason: now.wait_reason, wait_detail: now.wait_detail }
      : next;
}

function isOlder(next: Task, now: Task): boolean {
  if (next.version !== now.version) return next.version < now.version;
  return (next.progress ?? -1) < (now.progress ?? -1);
}

/** Takes one event of the history. True when the snapshot held here is now behind. */
export function applyEvent(event: TaskEvent): boolean {
  const trail = trailSignal(event.task_id);
  const last = trail.peek().at(-1);
  if (!last || event.version > last.version) trail.value = [...trail.peek(), event];
  const held = taskSignal(event.task_id);
  const now = held.peek();
  // The first snapshot is still under way; it is compared with the trail when it comes.
  if (!now) return false;
  if (event.version <= now.version) return false;
  // An end is shown with its money and its video, which only the snapshot has.
  if (isTerminal(event)) return true;
  held.value = {
    ...now,
    version: event.version,
    status: event.status,
    stage: event.stage,
    attempt_no: event.attempt_no,
    error_code: event.error_code ?? null,
    progress: null,
    queue_position: null,
    eta: null,
    wait_reason: null,
    wait_detail: null,
  };
  return true;
}

export function applyProgress(id: string, event: ProgressEvent): void {
  const held = taskSignal(id);
  const now = held.peek();
  if (!now || event.version !== now.version || (event.progress ?? -1) <= (now.progress ?? -1)) return;
  // A time left that was reckoned without any progress says nothing about the rest; the next read brings a better one.
  held.value = { ...now, progress: event.progress, eta: now.progress === null ? null : now.eta };
}
