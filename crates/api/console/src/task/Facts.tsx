// What was asked for, what it costs, and the ids that support asks for.
import type { Task } from "../api/types";
import { grouped, shortId } from "../format/figures";
import { requestIds } from "../state/send";
import { Copy } from "../ui/Copy";
import { When } from "../ui/When";

/** "mock-slow, 5 s, 720p, seed 41" */
export function settings(task: Task): string {
  const inputs = task.inputs;
  if (!inputs) return task.model;
  const parts = [task.model, `${inputs.duration_seconds} s`];
  if (inputs.resolution) parts.push(inputs.resolution);
  if (inputs.aspect_ratio) parts.push(inputs.aspect_ratio);
  if (inputs.seed != null) parts.push(`seed ${inputs.seed}`);
  return parts.join(", ");
}

/** "quoted 10, charged 10": figures that are 0 say nothing, but the price always does. */
export function money({ credits }: Task): string {
  const parts = [`quoted ${grouped(credits.quoted)}`];
  if (credits.held > 0) parts.push(`held ${grouped(credits.held)}`);
  if (credits.charged > 0) parts.push(`charged ${grouped(credits.charged)}`);
  if (credits.released > 0) parts.push(`returned ${grouped(credits.released)}`);
  return parts.join(", ");
}

export function Facts({ task }: { task: Task }) {
  const requestId = requestIds.get(task.task_id);
  return (
    <dl class="facts">
      <dt>Credits</dt>
      <dd>{money(task)}</dd>
      <dt>Settings</dt>
      <dd>{settings(task)}</dd>
      {task.inputs?.negative_prompt && (
        <>
          <dt>Negative</dt>
          <dd class="facts-text">{task.inputs.negative_prompt}</dd>
        </>
      )}
      {task.attempt_no > 1 && (
        <>
          <dt>Tries</dt>
          <dd>{task.attempt_no}</dd>
        </>
      )}
      <dt>Created</dt>
      <dd>
        <When at={task.created_at} />
      </dd>
      <dt>Task</dt>
      <dd>
        <Id id={task.task_id} label="Copy task id" />
      </dd>
      {requestId && (
        <>
          <dt>Request</dt>
          <dd>
            <Id id={requestId} label="Copy request id" />
          </dd>
        </>
      )}
    </dl>
  );
}

export function Id({ id, label }: { id: string; label: string }) {
  return (
    <span class="id">
      <code title={id}>{shortId(id)}</code>
      <Copy quiet label={label} text={() => id} />
    </span>
  );
}
