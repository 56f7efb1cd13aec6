// One task: the video, what became of it, what was asked for, and how it went, event by event.
import { missing } from "../state/follow";
import { taskSignal, trailSignal } from "../state/tasks";
import type { Task } from "../api/types";
import { exactTime, fullTime } from "../format/time";
import { tasksHref } from "../router";
import { trailLine, trailMoney } from "../words/trail";
import { Actions } from "../task/Actions";
import { Facts } from "../task/Facts";
import { Frame } from "../task/Frame";
import { Status } from "../task/Status";
import { useFollow } from "../task/useFollow";
import { Icon } from "../ui/Icon";
import { Title } from "../ui/Title";
import { NotFound } from "./NotFound";

export function TaskPage({ id }: { id: string }) {
  useFollow(id);
  const task = taskSignal(id).value;
  if (missing.value.has(id)) return <NotFound what="This video does not exist, or it is not yours." />;
  return (
    <div class="task-page">
      <a class="back" href={tasksHref("")}>
        <Icon name="back" size={16} />
        Tasks
      </a>
      <Title>{task?.inputs ? firstLine(task.inputs.prompt) : "Video"}</Title>
      {task ? <Whole task={task} /> : <div class="frame" aria-hidden="true" />}
    </div>
  );
}

const firstLine = (prompt: string): string => {
  const line = prompt.trim().split("\n")[0] ?? "";
  return line.length > 90 ? `${line.slice(0, 88)}..` : line;
};

function Whole({ task }: { task: Task }) {
  return (
    <div class="task">
      <div class="task-main">
        <Frame task={task} />
        <Status task={task} />
        <Actions task={task} />
      </div>
      <aside class="task-side" aria-label="About this video">
        <Facts task={task} />
        {task.inputs && (
          <section>
            <h2>Prompt</h2>
            <p class="prompt-text">{task.inputs.prompt}</p>
          </section>
        )}
      </aside>
      <Trail task={task} />
    </div>
  );
}

/** Events that belong to one try, and that make one wonder which. */
const TRIES = ["submitted", "requeued", "reconciling"];

function Trail({ task }: { task: Task }) {
  const trail = trailSignal(task.task_id).value;
  return (
    <section class="trail">
      <h2>Trail</h2>
      <ol>
        {trail.map((event) => (
          <li key={event.version}>
            <time dateTime={event.at} title={fullTime(event.at)}>
              {exactTime(event.at)}
            </time>
            <span class="trail-line">{trailLine(event, task)}</span>
            <span class="trail-try">{TRIES.includes(event.type) ? `try ${event.attempt_no}` : ""}</span>
            <span class="trail-money">{trailMoney(event)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
