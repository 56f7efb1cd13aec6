// The stage where there is no room for one: a line above the form that leads to the whole.
import type { Task } from "../api/types";
import { modelByName } from "../state/account";
import { serverNow, useSeconds } from "../state/clock";
import { isTerminal, trailSignal } from "../state/tasks";
import { taskHref } from "../router";
import { ending } from "../words/ends";
import { headline } from "../words/live";
import { generatingSince } from "../words/stages";
import { Icon } from "../ui/Icon";
import { Progress } from "../ui/Progress";
import { Thumbnail } from "./Row";
import { MOVING } from "./Status";

export function Strip({ task }: { task: Task }) {
  const over = isTerminal(task);
  useSeconds(!over);
  const trail = trailSignal(task.task_id).value;
  const sentence = over
    ? ending(task)
    : headline(task, { now: serverNow(), generatingSince: generatingSince(trail), model: modelByName.value.get(task.model) });
  return (
    <a class="strip" href={taskHref(task.task_id)}>
      <Thumbnail task={task} picture />
      <span class="strip-words">
        <span class="strip-sentence">{sentence}</span>
        <span class="strip-prompt">{task.inputs?.prompt}</span>
      </span>
      <Icon name="forward" />
      {!over && <Progress value={task.progress} moving={MOVING.includes(task.stage)} text={sentence} />}
    </a>
  );
}
