// The models: cards where there is room, so that price and speed can be compared; a select where there isn't.
import { models, modelsFailed, loadAccount, rateOf } from "../state/account";
import { draft } from "../state/draft";
import { wide } from "../state/media";
import type { Model } from "../api/types";
import { grouped } from "../format/figures";
import { usual } from "../format/time";
import { change } from "./change";
import { Field } from "./Field";

export function Models() {
  if (models.value.length === 0) return <Missing />;
  return wide.value ? <Cards /> : <Select />;
}

/** Credits a second at the chosen resolution, else at the model's own. */
function rate(model: Model): string {
  const perSecond = rateOf(model, draft.value.resolution) ?? rateOf(model, null);
  return perSecond === null ? "" : `${grouped(perSecond)} / s`;
}

function Cards() {
  return (
    <fieldset class="models">
      <legend>Model</legend>
      {models.value.map((model) => (
        <label key={model.model} class="card">
          <input type="radio" name="model" value={model.model} checked={draft.value.model === model.model} onChange={() => change({ model: model.model })} />
          <span class="card-name">{model.model}</span>
          <span class="card-rate">{rate(model)}</span>
          <span class="card-more">{facts(model)}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** "to 10 s, 720p, usual 1 s" */
function facts(model: Model): string {
  const best = Object.keys(model.price_per_second).sort((a, b) => parseInt(b, 10) - parseInt(a, 10))[0];
  return [`to ${model.duration_seconds.max} s`, best, `usual ${usual(model.usual_duration_ms)}`].filter(Boolean).join(", ");
}

function Select() {
  return (
    <Field id="model" name="model" label="Model">
      {(described) => (
        <select id="model" name="model" value={draft.value.model} onChange={(event) => change({ model: event.currentTarget.value })} {...described}>
          {models.value.map((model) => (
            <option key={model.model} value={model.model}>
              {model.model} {rate(model)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** Room for the cards before they are known, so that nothing jumps. */
function Missing() {
  return (
    <div class="models models-missing">
      <span class="legend">Model</span>
      {modelsFailed.value ? (
        <p class="refusal-line">
          The models could not be read.{" "}
          <button type="button" class="link-button" onClick={() => void loadAccount()}>
            Try again
          </button>
        </p>
      ) : (
        [0, 1, 2].map((n) => <div key={n} class="card card-empty" aria-hidden="true" />)
      )}
    </div>
  );
}
