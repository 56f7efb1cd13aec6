// The large stage: the video once there is one, before that a frame of the requested shape with what is happening.
import type { Task } from "../api/types";
import { isTerminal } from "../state/tasks";
import { lookOf } from "../words/look";
import { Icon } from "../ui/Icon";
import { Player } from "./Player";

export function Frame({ task }: { task: Task }) {
  if (task.status === "SUCCEEDED") {
    return (
      <div class="frame">
        <Player key={task.task_id} task={task} />
      </div>
    );
  }
  const look = lookOf(task);
  const ratio = task.inputs?.aspect_ratio?.replace(":", " / ") ?? "16 / 9";
  const spins = look.icon === "ring";
  return (
    <div class="frame">
      <div class={`frame-shape ${ratio.startsWith("9") || ratio.startsWith("3 ") ? "tall" : ""}`} style={{ aspectRatio: ratio }}>
        <div class={`frame-words tone-${look.tone}`}>
          {task.progress !== null && !isTerminal(task) ? (
            <span class="frame-figure" aria-hidden="true">
              {task.progress}%
            </span>
          ) : (
            <Icon name={look.icon} size={32} class={spins ? "spin" : ""} />
          )}
          <span class="frame-label">{look.label}</span>
        </div>
      </div>
    </div>
  );
}
