// The newest tasks of this user, as the Create page lists them, and the quiet refresh of those that still move.
// The followed task has its stream; the others share one request every few seconds.
import { effect, signal } from "@preact/signals";
import { listTasks } from "../api/routes";
import { refreshCredits } from "./account";
import { isTerminal, keep, taskSignal } from "./tasks";

/** Ids, newest first. Null until the first answer. */
export const recent = signal<string[] | null>(null);

const SHOWN = 20;
const REFRESH_MS = 4_000;

export async function loadRecent(): Promise<void> {
  const answer = await listTasks({ limit: SHOWN });
  if (answer.kind !== "ok") return;
  for (const task of answer.body.items) keep(task, "list");
  const listed = answer.body.items.map((task) => task.task_id);
  // A task sent a moment ago may be newer than this answer.
  const ahead = (recent.peek() ?? []).filter((id) => !listed.includes(id) && id > (listed[0] ?? ""));
  recent.value = [...ahead, ...listed].slice(0, SHOWN);
}

export function addRecent(id: string): void {
  recent.value = [id, ...(recent.peek() ?? []).filter((other) => other !== id)].slice(0, SHOWN);
}

/** Tasks of `ids` that still move. */
const moving = (ids: readonly string[]): string[] =>
  ids.filter((id) => {
    const task = taskSignal(id).peek();
    return task !== null && !isTerminal(task);
  });

/** Keeps the moving ones of a list fresh while it is shown; the answer stops it. */
export function refreshMoving(ids: () => readonly string[]): () => void {
  const timer = setInterval(() => void tick(), REFRESH_MS);
  async function tick(): Promise<void> {
    const stale = moving(ids());
    if (document.hidden || stale.length === 0) return;
    const answer = await listTasks({ ids: stale, limit: stale.length });
    if (answer.kind === "ok") for (const task of answer.body.items) keep(task, "list");
  }
  return () => clearInterval(timer);
}

/** Reads the credits again whenever a task that is listed reaches its end. */
export function watchMoney(ids: () => readonly string[]): () => void {
  let settled: number | null = null;
  return effect(() => {
    const ended = ids().filter((id) => {
      const task = taskSignal(id).value;
      return task !== null && isTerminal(task);
    }).length;
    if (settled !== null && ended > settled) void refreshCredits();
    settled = ended;
  });
}
