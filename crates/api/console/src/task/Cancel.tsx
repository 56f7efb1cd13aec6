// Cancel. In line it ends the task at once; past that it asks first, in place, and says what it brings.
import { useEffect, useRef, useState } from "preact/hooks";
import { cancelTask } from "../api/routes";
import type { Task } from "../api/types";
import { alertNow } from "../state/announce";
import { keep } from "../state/tasks";
import { refreshCredits } from "../state/account";
import { mayCreate } from "../state/session";
import { otherSentence } from "../words/refusals";

const CANCELABLE = ["queued", "dispatching", "provider_queued", "provider_generating", "reconciling"];

export function Cancel({ task }: { task: Task }) {
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState("");
  const yes = useRef<HTMLButtonElement>(null);
  const first = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (asking) yes.current?.focus();
  }, [asking]);

  const cancel = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    const answer = await cancelTask(task.task_id);
    setBusy(false);
    setAsking(false);
    if (answer.kind === "ok") {
      keep(answer.body);
      void refreshCredits();
      return;
    }
    const sentence =
      answer.kind === "refused" && answer.problem.status === 409
        ? "Too late to cancel: it is being saved."
        : answer.kind === "refused"
          ? otherSentence(answer.problem)
          : "No answer. It may still be canceled; press Cancel again.";
    setRefusal(sentence);
    alertNow(sentence);
  };

  const offered = CANCELABLE.includes(task.stage) && task.version > 0 && mayCreate.value;
  return (
    <div class="cancel">
      {offered && !asking && (
        <button ref={first} type="button" class="button" aria-disabled={busy} onClick={() => (task.stage === "queued" ? void cancel() : setAsking(true))}>
          Cancel
        </button>
      )}
      {offered && asking && (
        <div
          class="cancel-ask"
          role="group"
          aria-label="Cancel this video?"
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.stopPropagation();
            setAsking(false);
            requestAnimationFrame(() => first.current?.focus());
          }}
        >
          <span>Cancel? Credits return.</span>
          <button ref={yes} type="button" class="button danger" aria-disabled={busy} onClick={() => void cancel()}>
            Cancel video
          </button>
          <button type="button" class="button" onClick={() => setAsking(false)}>
            Keep going
          </button>
        </div>
      )}
      {refusal && <p class="refusal-line">{refusal}</p>}
    </div>
  );
}
