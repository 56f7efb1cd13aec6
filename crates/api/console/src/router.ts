// Pages live behind the fragment, because the paths of this origin are the API's. Each history entry remembers how far
// it was scrolled, so that Back comes to the place that was left.
import { signal } from "@preact/signals";

export type Route =
  | { page: "create" }
  | { page: "task"; id: string }
  | { page: "tasks"; status: string }
  | { page: "nowhere" };

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean);
  if (parts.length === 0) return { page: "create" };
  if (parts[0] === "t" && parts[1] && parts.length === 2) return { page: "task", id: decode(parts[1]) };
  if (parts[0] === "tasks" && parts.length === 1) return { page: "tasks", status: new URLSearchParams(query).get("status") ?? "" };
  return { page: "nowhere" };
}

/** A half-typed escape is no reason to fail: it is an id that nobody has. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const taskHref = (id: string): string => `#/t/${encodeURIComponent(id)}`;
export const tasksHref = (status: string): string => (status ? `#/tasks?status=${encodeURIComponent(status)}` : "#/tasks");

export const route = signal<Route>(parse(location.hash));
/** Counts navigations; 0 is the first page, which takes no focus. */
export const navigations = signal(0);

export function go(href: string): void {
  location.hash = href;
}

const scrolled = new Map<number, number>();
let entry = 0;
let newest = 0;
/** Between a navigation and the drawing of its page, the browser scrolls for reasons of its own. */
let arriving = false;

/** Scrolls to where the entry we came back to was left; to the top of a new one. */
export function restoreScroll(): void {
  scrollTo(0, scrolled.get(entry) ?? 0);
  arriving = false;
}

export function startRouter(): void {
  history.scrollRestoration = "manual";
  mark();
  addEventListener("scroll", () => arriving || scrolled.set(entry, scrollY), { passive: true });
  addEventListener("hashchange", () => {
    arriving = true;
    mark();
    route.value = parse(location.hash);
    navigations.value += 1;
  });
}

/** Gives this history entry its number, or reads the one it has: only entries we come back to have one. */
function mark(): void {
  const state = history.state as { entry?: number } | null;
  if (typeof state?.entry === "number") {
    entry = state.entry;
    newest = Math.max(newest, entry);
  } else {
    entry = ++newest;
    history.replaceState({ entry }, "");
  }
}
