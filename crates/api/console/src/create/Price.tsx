// What the video costs, what that leaves, and whether it would start. The price is there at once, from the list; the
// dry run adds what only the server knows.
import { credits as balance, modelByName, priceOf, rateOf } from "../state/account";
import { draft } from "../state/draft";
import { quoting } from "../state/quote";
import { credits, grouped } from "../format/figures";
import { startsIn } from "../words/live";
import { quoteReason } from "../words/refusals";
import type { Quote } from "../api/types";

export function Price() {
  const { model: name, seconds, resolution } = draft.value;
  const model = modelByName.value.get(name);
  const rate = model ? rateOf(model, resolution) : null;
  const state = quoting.value;
  const quoted = state.kind === "answered" ? state.quote.credits : null;
  const price = quoted ?? (model ? priceOf(model, seconds, resolution) : null);
  const available = balance.value?.available ?? null;
  return (
    <div class="price">
      <p class="price-figure">{price === null ? "" : credits(price)}</p>
      <p class="price-sum">
        {rate !== null && `${seconds} s x ${grouped(rate)}.`}
        {price !== null && available !== null && available >= price && ` Leaves ${grouped(available - price)}.`}
      </p>
      <p class="price-wait">{state.kind === "checking" ? "Checking wait" : state.kind === "answered" ? verdict(state.quote) : ""}</p>
    </div>
  );
}

function verdict(quote: Quote): string {
  switch (quote.decision) {
    case "starts_now":
      return "Starts at once.";
    case "queues":
      return quote.eta ? startsIn(quote.eta) : "It will wait in line.";
    case "refused":
      return `Would be refused: ${quoteReason(quote.problem)}.`;
    default:
      return `(${quote.decision})`;
  }
}
