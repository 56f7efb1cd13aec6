// Editing the draft, and what that does to what was said about the old one.
import { edit, type Draft } from "../state/draft";
import { clearRefusal, sending } from "../state/send";
import { localError } from "./localError";

export function change(changes: Partial<Draft>): void {
  localError.value = null;
  // A limit passes with time only; every other refusal spoke of a draft that is no more.
  const now = sending.peek();
  if (now.kind === "refused" && now.problem.status !== 429) clearRefusal();
  edit(changes);
}
