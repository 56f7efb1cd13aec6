// The request behind a task as a command. It names the key by a variable: a token has no place in a clipboard.
import type { Task } from "../api/types";

export function curl(task: Task): string {
  const inputs = task.inputs;
  if (!inputs) return "";
  const body: Record<string, unknown> = { model: task.model, prompt: inputs.prompt, duration_seconds: inputs.duration_seconds };
  if (inputs.negative_prompt) body.negative_prompt = inputs.negative_prompt;
  if (inputs.resolution) body.resolution = inputs.resolution;
  if (inputs.aspect_ratio) body.aspect_ratio = inputs.aspect_ratio;
  if (inputs.seed != null) body.seed = inputs.seed;
  return [
    `curl -X POST ${location.origin}/generations`,
    `-H "Authorization: Bearer $AIVIDEO_KEY"`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

/** For a POSIX shell: nothing inside single quotes means anything, except a single quote. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
