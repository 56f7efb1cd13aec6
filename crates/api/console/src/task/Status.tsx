// Below the stage: the sentence that says where the video is, how far, and the way out.
import type { Task } from "../api/types";
import { modelByName } from "../state/account";
import { serverNow, useSeconds } from "../state/clock";
import { isTerminal, trailSignal } from "../state/tasks";
import { clock, duration } from "../format/time";
import { ending } from "../words/ends";
import { detail, headline } from "../words/live";
import { lookOf } from "../words/look";
import { generatingSince, steps } from "../words/stages";
import { Icon } from "../ui/Icon";
import { Progress } from "../ui/Progress";
import { Steps } from "../ui/Steps";
import { Cancel } from "./Cancel";

/** Stages in which something moves although nobody can say how far it is. */
export const MOVING = ["dispatching", "provider_queued", "provider_generating", "fetching_output", "reconciling"];

export function Status({ task }: { task: Task }) {
  const over = isTerminal(task);
  useSeconds(!over);
  const trail = trailSignal(task.task_id).value;
  const now = serverNow();
  const look = lookOf(task);
  const moment = { now, generatingSince: generatingSince(trail), model: modelByName.value.get(task.model) };
  const sentence = over ? ending(task) : headline(task, moment);
  const more = over ? "" : detail(task, moment);
  const began = Date.parse(task.created_at);
  const ended = task.ended_at ? Date.parse(task.ended_at) : null;
  return (
    <section class="status" aria-label="Status">
      <div class="status-line">
        <p class={`status-sentence tone-${look.tone}`}>
          <Icon name={look.icon} size={20} class={look.icon === "ring" ? "spin" : ""} />
          <span class="status-text">{sentence}</span>
        </p>
        {!over && <span class="elapsed" title="Since you pressed Generate">{clock((now - began) / 1_000)}</span>}
        <Cancel task={task} />
      </div>
      <p class="status-more">{more}</p>
      {!over && <Progress value={task.progress} moving={MOVING.includes(task.stage)} text={sentence} />}
      <Steps steps={steps(trail, task.stage, now)} total={over && ended !== null ? duration(ended - began) : undefined} />
    </section>
  );
}
