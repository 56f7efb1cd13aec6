// All tasks of the user, newest first, by status. What was loaded is kept while the page is open, so that Back comes
// to the same list at the same place.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { listTasks } from "../api/routes";
import { refreshMoving, watchMoney } from "../state/recent";
import { keep } from "../state/tasks";
import { tasksHref } from "../router";
import { List } from "../task/List";
import { Row, THUMBNAILS } from "../task/Row";
import { Title } from "../ui/Title";

interface Listing {
  ids: string[];
  cursor: string | null;
  state: "loading" | "loaded" | "failed";
}

const FILTERS: [status: string, label: string][] = [
  ["", "All"],
  ["QUEUED", "Waiting"],
  ["RUNNING", "Running"],
  ["SUCCEEDED", "Ready"],
  ["FAILED", "Failed"],
  ["CANCELED", "Canceled"],
];

/** Between the queue and the end there are more statuses than anybody wants to choose from. */
const RUNNING = "SCHEDULING,RECONCILING,PROVIDER_SUBMITTED,RUNNING,POST_PROCESSING";

const asked = (status: string): string | undefined => (status === "RUNNING" ? RUNNING : status || undefined);

const listings = signal<ReadonlyMap<string, Listing>>(new Map());
const PAGE = 30;

export const forgetListings = (): void => void (listings.value = new Map());

const listing = (status: string): Listing | undefined => listings.value.get(status);

function set(status: string, next: Listing): void {
  listings.value = new Map(listings.peek()).set(status, next);
}

async function load(status: string, more: boolean): Promise<void> {
  const held = listings.peek().get(status) ?? { ids: [], cursor: null, state: "loading" };
  set(status, { ...held, state: "loading" });
  const cursor = more ? (held.cursor ?? undefined) : undefined;
  const answer = await listTasks({ status: asked(status), cursor, limit: PAGE });
  if (answer.kind !== "ok") return set(status, { ...held, state: "failed" });
  for (const task of answer.body.items) keep(task, "list");
  set(status, { ...merge(held, answer.body.items.map((task) => task.task_id), answer.body.next_cursor, more), state: "loaded" });
}

/** Joins a page with what is held: behind it, or in front of it where the two still meet; else the list begins anew. */
function merge(held: Listing, page: string[], next: string | null, more: boolean): Pick<Listing, "ids" | "cursor"> {
  if (more) return { ids: [...new Set([...held.ids, ...page])], cursor: next };
  const last = page.at(-1);
  const meets = last !== undefined && held.ids.includes(last);
  // Ids are ordered by time, so whatever is smaller than the last of this page lies behind it.
  const behind = meets ? held.ids.filter((id) => id < last) : [];
  return behind.length > 0 ? { ids: [...page, ...behind], cursor: held.cursor } : { ids: page, cursor: next };
}

export function Tasks({ status }: { status: string }) {
  const held = listing(status);
  useEffect(() => {
    void load(status, false);
    const ids = (): readonly string[] => listings.value.get(status)?.ids ?? [];
    const stops = [refreshMoving(() => (listings.peek().get(status)?.ids ?? []).slice(0, 100)), watchMoney(ids)];
    return () => stops.forEach((stop) => stop());
  }, [status]);
  return (
    <div class="tasks-page">
      <Title>Tasks</Title>
      <nav class="filters" aria-label="Filter by status">
        {FILTERS.map(([value, label]) => (
          <a key={value} class="filter" href={tasksHref(value)} aria-current={value === status ? "true" : undefined}>
            {label}
          </a>
        ))}
      </nav>
      <Items status={status} held={held} />
    </div>
  );
}

function Items({ status, held }: { status: string; held: Listing | undefined }) {
  if (!held || (held.state === "loading" && held.ids.length === 0)) return <p class="quiet">Loading</p>;
  return (
    <>
      {held.ids.length > 0 && (
        <List label="Tasks">
          {held.ids.map((id, i) => (
            <Row key={id} id={id} picture={i < THUMBNAILS} />
          ))}
        </List>
      )}
      {held.ids.length === 0 && held.state === "loaded" && (
        <p class="quiet">{status ? "No videos with this status." : "No videos yet. Write a prompt and press Generate."}</p>
      )}
      {held.state === "failed" && (
        <p class="refusal-line">
          The list could not be read.{" "}
          <button type="button" class="link-button" onClick={() => void load(status, false)}>
            Try again
          </button>
        </p>
      )}
      {held.cursor && (
        <p class="list-more">
          <button type="button" class="button" aria-disabled={held.state === "loading"} onClick={() => held.state !== "loading" && void load(status, true)}>
            Show more
          </button>
        </p>
      )}
    </>
  );
}
