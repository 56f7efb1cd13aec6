// The form of a new video. Its options come from the chosen model's matrix; the price is always in sight.
import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { models } from "../state/account";
import { bringBack, draft, setAside, toRequest } from "../state/draft";
import { send, sending } from "../state/send";
import { mayCreate } from "../state/session";
import { alertNow } from "../state/announce";
import { change } from "./change";
import { Field, fieldError } from "./Field";
import { localError } from "./localError";
import { Models } from "./Models";
import { Options } from "./Options";
import { Price } from "./Price";
import { Refusal } from "./Refusal";
import { SendButton, sendBlocked } from "./SendButton";

export function Form() {
  const form = useRef<HTMLFormElement>(null);
  const state = sending.value;

  // The first field that was refused takes the focus; everything else leaves it where it was.
  useEffect(() => {
    if (state.kind !== "refused" || state.problem.status !== 422) return;
    form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [state]);

  const submit = (event?: Event): void => {
    event?.preventDefault();
    if (sendBlocked()) return;
    const { prompt } = draft.peek();
    if (!prompt.trim()) {
      localError.value = { field: "prompt", message: "Write what the video should show." };
      alertNow("Write what the video should show.");
      form.current?.querySelector<HTMLElement>("#prompt")?.focus();
      return;
    }
    send(toRequest(draft.peek()));
  };

  const onKeyDown = (event: TargetedKeyboardEvent<HTMLFormElement>): void => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
  };

  return (
    <form ref={form} class="form" onSubmit={submit} onKeyDown={onKeyDown} noValidate>
      <Prompt />
      <Models />
      <Options />
      <More />
      <div class="send">
        <Price />
        {mayCreate.value ? <SendButton /> : <p class="refusal-line">This key may not create videos (needs write).</p>}
        <Refusal />
      </div>
    </form>
  );
}

function Prompt() {
  const field = useRef<HTMLTextAreaElement>(null);
  const { prompt } = draft.value;
  const length = [...prompt.trim()].length;
  // Grows with its text, from 5 rows to 12.
  useEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight + 2}px`;
  }, [prompt]);
  return (
    <Field id="prompt" name="prompt" label="Prompt" aside={length > 3_500 ? `${length} of 4000` : undefined}>
      {(described) => (
        <textarea
          ref={field}
          id="prompt"
          rows={5}
          value={prompt}
          placeholder="What the video should show"
          onInput={(event) => change({ prompt: event.currentTarget.value })}
          {...described}
        />
      )}
    </Field>
  );
}

function More() {
  const { negative, seed, model } = draft.value;
  const chosen = models.value.find((offered) => offered.model === model);
  const open = fieldError("negative_prompt") !== null || fieldError("seed") !== null;
  if (chosen && !chosen.negative_prompt && !chosen.seed) return null;
  return (
    <>
      <details class="more" open={open || negative !== "" || seed !== "" || undefined}>
        <summary>
          More<span class="summary-hint">negative prompt, seed</span>
        </summary>
        <div class="more-fields">
          {chosen?.negative_prompt !== false && (
            <Field id="negative" name="negative_prompt" label="Negative prompt">
              {(described) => (
                <input id="negative" type="text" value={negative} placeholder="What it must not show" onInput={(event) => change({ negative: event.currentTarget.value })} {...described} />
              )}
            </Field>
          )}
          {chosen?.seed !== false && (
            <Field id="seed" name="seed" label="Seed">
              {(described) => (
                <input id="seed" type="text" inputMode="numeric" value={seed} placeholder="Random" onInput={(event) => change({ seed: event.currentTarget.value })} {...described} />
              )}
            </Field>
          )}
        </div>
      </details>
      {setAside.value && (
        <p class="aside-draft">
          Your draft was set aside.{" "}
          <button type="button" class="link-button" onClick={bringBack}>
            Bring it back
          </button>
        </p>
      )}
    </>
  );
}
