// Why a request was refused, in a sentence that names the way on. Codes that aren't known show the server's own title.
import type { Problem } from "../api/problem";
import { grouped } from "../format/figures";
import { timeOfDay } from "../format/time";

/** For 429: what the limit is. The countdown is added by whoever shows it. */
export function limitSentence(problem: Problem, model: string): string {
  const limit = problem.limit == null ? null : grouped(problem.limit);
  if (problem.code === "queue_full") {
    return limit === null
      ? "Too many of your videos are waiting."
      : problem.scope === "tenant"
        ? `${limit} of your team's videos are waiting, the most allowed.`
        : `${limit} of your videos are waiting, the most allowed.`;
  }
  if (problem.code === "quota_exceeded") {
    const zone = problem.time_zone ? ` (${problem.time_zone})` : "";
    const used = limit === null ? "Today's videos are used." : `Today's ${limit} videos are used.`;
    return `${used} More at ${resetTime(problem)}${zone}.`;
  }
  if (problem.scope === "ip") return "Too many requests from this network.";
  if (problem.scope === "key") return "Too many requests.";
  if (problem.scope === "model" && limit !== null) return `${model} allows ${limit} in ${windowWords(problem, "10 minutes")}.`;
  if (limit === null) return "Too many requests.";
  const who = problem.scope === "tenant" ? "Your team can" : "You can";
  return `${who} start ${limit} videos ${windowPer(problem)}.`;
}

/** Midnight where the quota is counted, as the server gives it. */
function resetTime(problem: Problem): string {
  if (typeof problem.reset === "string" && problem.time_zone) {
    try {
      return new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: problem.time_zone }).format(new Date(problem.reset));
    } catch {
      // A zone this browser doesn't know: its own time is still right.
    }
  }
  if (typeof problem.reset === "string") return timeOfDay(problem.reset);
  return "00:00";
}

function windowPer(problem: Problem): string {
  const seconds = problem.windowSeconds ?? 60;
  if (seconds === 60) return "a minute";
  if (seconds === 1) return "a second";
  if (seconds === 3_600) return "an hour";
  return `in ${windowWords(problem, "a minute")}`;
}

function windowWords(problem: Problem, usual: string): string {
  const seconds = problem.windowSeconds;
  if (seconds === null) return usual;
  return seconds >= 120 && seconds % 60 === 0 ? `${seconds / 60} minutes` : `${seconds} s`;
}

/** Anything else: the title, the way to report it. */
export function otherSentence(problem: Problem): string {
  if (problem.status === 403) return `This key may not create videos (needs ${neededScope(problem)}).`;
  const said = (problem.detail ?? problem.title).replace(/\.?\s*$/, ".");
  return said;
}

export const neededScope = (problem: Problem): string => (problem.scope ?? /\b(tenant:\w+|read|write|admin)\b/.exec(problem.detail ?? "")?.[1]) || "write";

/** After "Would be refused:". */
export function quoteReason(problem: Problem | null | { code: string; title: string; detail?: string | null }): string {
  if (!problem) return "the server gave no reason";
  switch (problem.code) {
    case "insufficient_credits":
      return "not enough credits";
    case "queue_full":
      return "too many of your videos are waiting";
    case "quota_exceeded":
      return "today's videos are used";
    case "rate_limited":
      return "too many requests";
    case "unavailable":
      return "the service is busy";
    default:
      return (problem.detail ?? problem.title).replace(/\.\s*$/, "");
  }
}

/** The sentence under the key field. */
export function keySentence(problem: Problem | "silent"): string {
  if (problem === "silent") return "No answer. Is the network up?";
  switch (problem.status) {
    case 401:
      return "This key was not accepted. Keys start with avk_; is all of it there?";
    case 403:
      return otherSentence(problem);
    case 429:
      // A good key passes even then, so only a wrong one meets this; the network's own limit has another policy.
      return problem.policy === "ip" ? "Too many requests from this network." : "Too many wrong keys.";
    case 503:
      return "The service is busy.";
    default:
      return otherSentence(problem);
  }
}
