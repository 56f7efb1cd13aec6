// One task in a list: picture, prompt, status, model, length, credits, time. The whole row is a link.
import type { Task } from "../api/types";
import { SENDING } from "../words/look";
import { lookOf } from "../words/look";
import { isTerminal, taskSignal } from "../state/tasks";
import { grouped } from "../format/figures";
import { taskHref } from "../router";
import { Badge } from "../ui/Badge";
import { Icon } from "../ui/Icon";
import { When } from "../ui/When";
import { localLink } from "./links";
import type { GenerationRequest } from "../api/types";

/** A row of this many may load its video to show a first picture. */
export const THUMBNAILS = 8;

export function Row({ id, picture }: { id: string; picture: boolean }) {
  const task = taskSignal(id).value;
  if (!task) return null;
  const progress = task.progress !== null && !isTerminal(task) ? ` ${task.progress}%` : "";
  const look = lookOf(task);
  return (
    <li>
      <a class="row" href={taskHref(id)}>
        <Thumbnail task={task} picture={picture} />
        <span class="row-prompt">{task.inputs?.prompt ?? "(inputs erased)"}</span>
        <span class="row-status">
          <Badge look={{ ...look, label: look.label + progress }} />
        </span>
        <span class="row-facts">
          {task.model}
          {task.inputs && `, ${task.inputs.duration_seconds} s`}
        </span>
        <span class="row-money">{moneyWord(task)}</span>
        <span class="row-when">
          <When at={task.created_at} />
        </span>
      </a>
    </li>
  );
}

/** The row that a press of Generate puts in at once; a refusal takes it away. */
export function SendingRow({ request }: { request: GenerationRequest }) {
  return (
    <li>
      <div class="row">
        <span class="thumb" />
        <span class="row-prompt">{request.prompt}</span>
        <span class="row-status">
          <Badge look={SENDING} />
        </span>
        <span class="row-facts">
          {request.model}, {request.duration_seconds} s
        </span>
        <span class="row-money" />
        <span class="row-when">now</span>
      </div>
    </li>
  );
}

function moneyWord({ credits }: Task): string {
  if (credits.held > 0) return `${grouped(credits.held)} held`;
  if (credits.charged > 0) return `${grouped(credits.charged)} charged`;
  if (credits.released > 0) return `${grouped(credits.released)} back`;
  return "";
}

/** Until there are posters, a muted video stopped at its first moment. */
export function Thumbnail({ task, picture }: { task: Task; picture: boolean }) {
  const link = localLink(task.output_url);
  if (link && picture) return <video class="thumb" src={`${link}#t=0.1`} muted preload="metadata" tabIndex={-1} aria-hidden="true" />;
  const look = lookOf(task);
  return (
    <span class={`thumb tone-${look.tone}`}>
      <Icon name={look.icon} size={16} class={look.icon === "ring" ? "spin" : ""} />
    </span>
  );
}
