// What can be done with a task that is over: take the video along, or make another from it.
import type { Task } from "../api/types";
import { failure } from "../words/ends";
import { loadInputs, draft, toRequest } from "../state/draft";
import { models } from "../state/account";
import { send, shown } from "../state/send";
import { mayCreate } from "../state/session";
import { timeOfDay } from "../format/time";
import { go } from "../router";
import { focusSoon } from "../ui/focus";
import { Copy } from "../ui/Copy";
import { Icon } from "../ui/Icon";
import { curl } from "./curl";
import { linkExpiry, localLink, publicLink } from "./links";

export function Actions({ task }: { task: Task }) {
  if (task.status === "SUCCEEDED") return <ReadyActions task={task} />;
  if (task.status === "FAILED" || task.status === "CANCELED") return <WaysOn task={task} />;
  return null;
}

function ReadyActions({ task }: { task: Task }) {
  const url = task.output_url;
  return (
    <div class="actions">
      {url && (
        <>
          <a class="button primary" href={localLink(url) ?? undefined} download={`${task.task_id}.mp4`}>
            <Icon name="download" />
            Download
          </a>
          <Copy icon="link" label="Copy link" text={() => publicLink(url)} done={() => worksUntil(url)} />
        </>
      )}
      {task.inputs && <Copy icon="terminal" label="Copy curl" text={() => curl(task)} />}
      {task.inputs && mayCreate.value && (
        <button type="button" class="button" onClick={() => editAgain(task, "prompt")}>
          <Icon name="pencil" />
          Edit and run again
        </button>
      )}
      {url && "share" in navigator && (
        <button type="button" class="button" onClick={() => void navigator.share({ url: publicLink(url) }).catch(() => undefined)}>
          <Icon name="share" />
          Share
        </button>
      )}
    </div>
  );
}

function worksUntil(url: string): string {
  const expiry = linkExpiry(url);
  return expiry === null ? "Copied" : `Copied. Works until ${timeOfDay(expiry)}.`;
}

/** After a failure or a cancel: the way that fits comes first, editing is always there. */
function WaysOn({ task }: { task: Task }) {
  if (!task.inputs || !mayCreate.value) return null;
  const way = task.status === "CANCELED" ? "again" : failure(task).way;
  return (
    <div class="actions">
      {way === "again" && (
        <button type="button" class="button primary" onClick={() => runAgain(task)}>
          Run again
        </button>
      )}
      {way === "other-model" && models.value.length > 1 && (
        <button type="button" class="button primary" onClick={() => editAgain(task, "model")}>
          Other model
        </button>
      )}
      <button type="button" class={way === "edit" ? "button primary" : "button"} onClick={() => editAgain(task, "prompt")}>
        <Icon name="pencil" />
        Edit prompt
      </button>
    </div>
  );
}

function editAgain(task: Task, field: "prompt" | "model"): void {
  if (!task.inputs) return;
  loadInputs(task.inputs, task.model);
  go("#/");
  focusSoon(field === "prompt" ? "#prompt" : "[name=model]:checked, select[name=model]");
}

/** The same inputs as a new video, with a price and a refusal of its own beside the button of the Create page. */
function runAgain(task: Task): void {
  if (!task.inputs) return;
  loadInputs(task.inputs, task.model);
  shown.value = null;
  go("#/");
  focusSoon("#generate");
  send(toRequest(draft.peek()));
}
