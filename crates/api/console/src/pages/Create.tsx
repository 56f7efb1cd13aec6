// The Create page: the form on one side, the stage on the other, the newest videos below.
import { useEffect } from "preact/hooks";
import { Form } from "../create/Form";
import { change } from "../create/change";
import { loadRecent, recent, refreshMoving, watchMoney } from "../state/recent";
import { sending, shown } from "../state/send";
import { startQuoting } from "../state/quote";
import { wide } from "../state/media";
import { taskSignal } from "../state/tasks";
import { shortId } from "../format/figures";
import { taskHref, tasksHref } from "../router";
import { Actions } from "../task/Actions";
import { Frame } from "../task/Frame";
import { List } from "../task/List";
import { Strip } from "../task/Strip";
import { Row, SendingRow, THUMBNAILS } from "../task/Row";
import { Status } from "../task/Status";
import { useFollow } from "../task/useFollow";
import { Copy } from "../ui/Copy";
import { Title } from "../ui/Title";

const EXAMPLES = [
  "A paper boat drifts down a rainy street at dusk",
  "Slow pan over a potter's workshop in morning light",
  "A red kite climbs above dunes, wind in the sand",
];

export function Create() {
  useEffect(() => startQuoting(), []);
  useEffect(() => {
    void loadRecent();
    const ids = (): readonly string[] => (recent.value ?? []).filter((id) => id !== shown.value);
    const stops = [refreshMoving(() => (recent.peek() ?? []).filter((id) => id !== stageId())), watchMoney(ids)];
    return () => stops.forEach((stop) => stop());
  }, []);
  return (
    <>
      <div class="create">
        <section class="create-form">
          <Title>New video</Title>
          <Form />
        </section>
        <Stage />
      </div>
      <Recent />
    </>
  );
}

/** What was just sent, else the newest. */
const stageId = (): string | null => shown.value ?? recent.value?.[0] ?? null;

function Stage() {
  const id = stageId();
  useFollow(id);
  const task = id === null ? null : taskSignal(id).value;
  const empty = recent.value !== null && id === null && sending.value.kind === "idle";
  return (
    <section class="stage" aria-label="Newest video">
      {task && !wide.value && <Strip task={task} />}
      {task && wide.value && (
        <>
          <Frame task={task} />
          <Status task={task} />
          <Actions task={task} />
          <p class="stage-about">
            <span class="stage-prompt">{task.inputs?.prompt}</span>
            <code title={task.task_id}>{shortId(task.task_id)}</code>
            <Copy quiet label="Copy task id" text={() => task.task_id} />
            <a href={taskHref(task.task_id)}>Open</a>
          </p>
        </>
      )}
      {!task && (wide.value || empty) && <div class="frame">{empty && <Empty />}</div>}
    </section>
  );
}

function Empty() {
  return (
    <div class="empty">
      <p>No videos yet. Write a prompt and press Generate.</p>
      <ul class="examples">
        {EXAMPLES.map((example) => (
          <li key={example}>
            <button
              type="button"
              class="example"
              onClick={() => {
                change({ prompt: example });
                document.getElementById("prompt")?.focus();
              }}
            >
              {example}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Recent() {
  const ids = recent.value ?? [];
  const state = sending.value;
  const underWay = state.kind === "sending" || state.kind === "checking" || state.kind === "busy" ? state.request : null;
  if (ids.length === 0 && !underWay) return <section class="recent" />;
  return (
    <section class="recent" aria-labelledby="recent-title">
      <div class="section-head">
        <h2 id="recent-title">Recent</h2>
        <a href={tasksHref("")}>All tasks</a>
      </div>
      <List label="Recent videos">
        {underWay && <SendingRow request={underWay} />}
        {ids.map((id, i) => (
          <Row key={id} id={id} picture={i < THUMBNAILS} />
        ))}
      </List>
    </section>
  );
}
