// Where a key is pasted, at the start or after a session ended. The key is sent once, in a header, and never stored.
import { useEffect, useRef, useState } from "preact/hooks";
import { alertNow } from "../state/announce";
import { fromNow, useCountdown, type Until } from "../state/countdown";
import { connect, phase } from "../state/session";
import { clock } from "../format/time";
import { keySentence } from "../words/refusals";

const ENDED = "Your session ended. Paste the key to go on; your draft is kept.";

export function Connect() {
  const [refusal, setRefusal] = useState("");
  const [busy, setBusy] = useState(false);
  const [until, setUntil] = useState<Until | null>(null);
  const left = useCountdown(until);
  const field = useRef<HTMLInputElement>(null);
  const ended = phase.value === "ended";
  useEffect(() => {
    if (ended) alertNow(ENDED);
    field.current?.focus();
  }, [ended]);

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const key = field.current?.value.trim() ?? "";
    if (busy || left > 0) return;
    if (!key) {
      setRefusal("Paste a key first.");
      field.current?.focus();
      return;
    }
    setBusy(true);
    const problem = await connect(key);
    setBusy(false);
    if (problem === null) return;
    const sentence = keySentence(problem);
    setRefusal(sentence);
    setUntil(problem !== "silent" && problem.retryAfterMs !== null ? fromNow(problem.retryAfterMs) : null);
    alertNow(sentence);
    field.current?.focus();
  };

  return (
    <div class="connect">
      <h1>Connect</h1>
      <p class="connect-why">{ended ? ENDED : "Paste an API key. It is swapped for a 15-minute token and not stored."}</p>
      <form onSubmit={(event) => void submit(event)} noValidate>
        <div class="field">
          <div class="field-head">
            <label for="key">API key</label>
          </div>
          <input
            ref={field}
            id="key"
            type="password"
            autocomplete="off"
            spellcheck={false}
            placeholder="avk_"
            aria-invalid={refusal ? "true" : undefined}
            aria-describedby="key-error"
            onInput={() => setRefusal("")}
          />
          <p id="key-error" class="field-error">
            {refusal}
            {refusal && left > 0 && ` Next try in ${clock(left)}.`}
          </p>
        </div>
        <button type="submit" class="button primary big" aria-disabled={busy || left > 0 ? true : undefined}>
          {busy ? "Connecting" : "Connect"}
        </button>
      </form>
    </div>
  );
}
