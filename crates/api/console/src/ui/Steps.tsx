// Queued, Sent, Generating, Saving: which one is under way and how long each took.
import { duration } from "../format/time";
import type { Step } from "../words/stages";

export function Steps({ steps, total }: { steps: Step[]; total?: string }) {
  return (
    <ol class="steps" aria-label="Stages">
      {steps.map((step) => (
        <li key={step.name} class={`step step-${step.state}`} aria-current={step.state === "now" ? "step" : undefined}>
          <span class="step-bar" />
          <span class="step-name">{step.name}</span>
          <span class="step-time">{step.state === "ahead" ? "" : duration(step.ms)}</span>
        </li>
      ))}
      {total && (
        <li class="step-total" aria-label={`All together ${total}`}>
          {total}
        </li>
      )}
    </ol>
  );
}
