// Length, resolution, aspect ratio: what the chosen model offers.
import { modelByName } from "../state/account";
import { draft } from "../state/draft";
import { change } from "./change";
import { Field } from "./Field";

export function Options() {
  const { model: name, seconds, resolution, aspect } = draft.value;
  const model = modelByName.value.get(name);
  const { min, max } = model?.duration_seconds ?? { min: seconds, max: seconds };
  const lengths = Array.from({ length: max - min + 1 }, (_, i) => min + i);
  const resolutions = model ? Object.keys(model.price_per_second) : [];
  return (
    <div class="options">
      <Choice id="length" name="duration_seconds" label="Length" value={String(seconds)} options={lengths.map((n) => [String(n), `${n} s`])} onPick={(value) => change({ seconds: Number(value) })} />
      <Choice id="resolution" name="resolution" label="Resolution" value={resolution} options={resolutions.map((r) => [r, r])} onPick={(value) => change({ resolution: value })} />
      {(!model || model.aspect_ratios.length > 0) && (
        <Choice id="aspect" name="aspect_ratio" label="Aspect" value={aspect} options={(model?.aspect_ratios ?? []).map((r) => [r, r])} onPick={(value) => change({ aspect: value })} />
      )}
    </div>
  );
}

interface ChoiceProps {
  id: string;
  name: string;
  label: string;
  value: string;
  options: [value: string, text: string][];
  onPick: (value: string) => void;
}

function Choice({ id, name, label, value, options, onPick }: ChoiceProps) {
  return (
    <Field id={id} name={name} label={label}>
      {(described) => (
        <select id={id} value={value} onChange={(event) => onPick(event.currentTarget.value)} {...described}>
          {options.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
