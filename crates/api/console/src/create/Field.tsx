// A labelled control with its error below it. The control gets what ties it to both.
import type { ComponentChildren } from "preact";
import { sending } from "../state/send";
import { localError } from "./localError";

export interface Described {
  "aria-invalid"?: "true";
  "aria-describedby"?: string;
}

interface Props {
  id: string;
  /** The API's name for it, by which a refusal points here. */
  name: string;
  label: string;
  aside?: string | undefined;
  children: (described: Described) => ComponentChildren;
}

/** What was refused about a field; null when nothing was. */
export function fieldError(name: string): string | null {
  const local = localError.value;
  if (local?.field === name) return local.message;
  const state = sending.value;
  if (state.kind !== "refused" || state.problem.status !== 422) return null;
  const found = state.problem.errors?.find((error) => fieldName(error.field) === name);
  return found ? sentence(found.message) : null;
}

/** Servers may point by a JSON pointer or a path; the last part is the member's name. */
export const fieldName = (field: string): string => field.split(/[./]/).filter(Boolean).at(-1) ?? field;

const sentence = (text: string): string => {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
};

export function Field({ id, name, label, aside, children }: Props) {
  const error = fieldError(name);
  const described: Described = error ? { "aria-invalid": "true", "aria-describedby": `${id}-error` } : {};
  return (
    <div class="field">
      <div class="field-head">
        <label for={id}>{label}</label>
        {aside && <span class="field-aside">{aside}</span>}
      </div>
      {children(described)}
      {error && (
        <p id={`${id}-error`} class="field-error">
          {error}
        </p>
      )}
    </div>
  );
}
