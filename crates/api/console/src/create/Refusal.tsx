// What came back instead of a video, beside the button that asked for it, with a way on. The place for one line is
// always reserved.
import { useEffect } from "preact/hooks";
import type { Problem } from "../api/problem";
import { alertNow } from "../state/announce";
import { credits as balance, modelByName, models, priceOf } from "../state/account";
import { useCountdown, type Until } from "../state/countdown";
import { sending } from "../state/send";
import type { GenerationRequest, Model } from "../api/types";
import { credits, grouped } from "../format/figures";
import { clock } from "../format/time";
import { limitSentence, otherSentence } from "../words/refusals";
import { Id } from "../task/Facts";
import { change } from "./change";
import { fieldName } from "./Field";

export function Refusal() {
  const state = sending.value;
  return (
    <div class="refusal">
      {state.kind === "checking" && <p>Checking whether it arrived; you are not charged twice.</p>}
      {state.kind === "busy" && <Busy until={state.until} />}
      {state.kind === "refused" && <Refused key={state.problem.request_id ?? ""} problem={state.problem} request={state.request} until={state.until} />}
    </div>
  );
}

function Busy({ until }: { until: Until }) {
  const left = useCountdown(until);
  return <p>The service is busy. Nothing was charged. Trying again in {clock(left)}.</p>;
}

interface Props {
  problem: Problem;
  request: GenerationRequest;
  until: Until | null;
}

function Refused(props: Props) {
  switch (props.problem.status) {
    case 402:
      return <NoCredit {...props} />;
    case 422:
      return <Invalid {...props} />;
    case 429:
      return <Limited {...props} />;
    default:
      return <Other {...props} />;
  }
}

/** A limit. The time is shown running and said once. */
function Limited({ problem, request, until }: Props) {
  const left = useCountdown(until);
  const sentence = limitSentence(problem, request.model);
  // A full queue and a used-up day don't end at a time that is worth counting here.
  const counts = left > 0 && problem.code !== "queue_full" && problem.code !== "quota_exceeded";
  useEffect(() => alertNow(counts ? `${sentence} Next in ${clock(left)}.` : sentence), []);
  return (
    <p>
      {sentence}
      {counts && ` Next in ${clock(left)}.`}
    </p>
  );
}

/** Too few credits: what would fit, one press away. */
function NoCredit({ problem, request }: Props) {
  const model = modelByName.value.get(request.model);
  const price = problem.required ?? (model ? priceOf(model, request.duration_seconds, request.resolution) : null);
  const have = problem.available ?? balance.value?.available ?? null;
  const held = problem.held ?? balance.value?.held ?? 0;
  const sentence =
    price === null || have === null
      ? "You don't have the credits for this video."
      : `This video costs ${credits(price)}; you have ${grouped(have)}.${held > 0 ? ` ${grouped(held)} are held by running videos.` : ""}`;
  useEffect(() => alertNow(sentence), []);
  const shorter = model && have !== null ? longestFor(model, request, have) : null;
  const cheaper = have !== null ? cheapestOther(request, have) : null;
  return (
    <>
      <p>{sentence}</p>
      <p class="refusal-ways">
        {shorter && (
          <button type="button" class="button" onClick={() => change({ seconds: shorter.seconds })}>
            Shorten to {shorter.seconds} s ({grouped(shorter.price)})
          </button>
        )}
        {cheaper && (
          <button type="button" class="button" onClick={() => change({ model: cheaper.model })}>
            Use {cheaper.model} ({grouped(cheaper.price)})
          </button>
        )}
      </p>
      <p class="refusal-more">Ask your administrator for credits.</p>
    </>
  );
}

/** The longest video of this model that the credits pay for. */
function longestFor(model: Model, request: GenerationRequest, have: number): { seconds: number; price: number } | null {
  for (let seconds = request.duration_seconds - 1; seconds >= model.duration_seconds.min; seconds--) {
    const price = priceOf(model, seconds, request.resolution);
    if (price !== null && price <= have) return { seconds, price };
  }
  return null;
}

/** The model nearest in price among those that the credits pay for at the same length. */
function cheapestOther(request: GenerationRequest, have: number): { model: string; price: number } | null {
  let best: { model: string; price: number } | null = null;
  for (const model of models.value) {
    if (model.model === request.model) continue;
    const { min, max } = model.duration_seconds;
    const seconds = Math.min(max, Math.max(min, request.duration_seconds));
    const price = priceOf(model, seconds, request.resolution) ?? priceOf(model, seconds, null);
    if (price !== null && price <= have && (best === null || price > best.price)) best = { model: model.model, price };
  }
  return best;
}

/** Fields say for themselves what is wrong; what belongs to no field of this form is said here. */
const SHOWN_FIELDS = ["prompt", "negative_prompt", "seed", "model", "duration_seconds", "resolution", "aspect_ratio"];

function Invalid({ problem, request, until }: Props) {
  const errors = problem.errors ?? [];
  const elsewhere = errors.filter((error) => !SHOWN_FIELDS.includes(fieldName(error.field)));
  const first = errors[0];
  useEffect(() => {
    if (first) alertNow(first.message);
  }, []);
  if (errors.length === 0) return <Other problem={problem} request={request} until={until} />;
  return (
    <>
      {elsewhere.map((error) => (
        <p key={error.field}>
          {error.field}: {error.message}
        </p>
      ))}
    </>
  );
}

function Other({ problem }: Props) {
  const sentence = problem.status === 503 ? "The service is busy. Nothing was charged." : otherSentence(problem);
  useEffect(() => alertNow(sentence), []);
  return (
    <>
      <p>{sentence}</p>
      {problem.request_id && problem.status !== 403 && (
        <p class="refusal-more">
          Request <Id id={problem.request_id} label="Copy request id" />
        </p>
      )}
    </>
  );
}
