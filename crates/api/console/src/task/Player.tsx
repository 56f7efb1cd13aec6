// The video. Its address carries a signature that runs out: a new one is fetched before that, and is used for copying
// and downloading, but a playing video is never exchanged for the same video under another address.
import { useEffect, useState } from "preact/hooks";
import { getTask } from "../api/routes";
import type { Task } from "../api/types";
import { serverNow } from "../state/clock";
import { reducedMotion } from "../state/media";
import { endedHere, keep } from "../state/tasks";
import { linkExpiry, localLink } from "./links";

const BEFORE_EXPIRY_MS = 60_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

type State = "playing" | "renewing" | "unplayable";

export function Player({ task }: { task: Task }) {
  const link = localLink(task.output_url);
  const [source, setSource] = useState(link);
  const [state, setState] = useState<State>("playing");
  const [autoplay] = useState(() => endedHere.delete(task.task_id) && !reducedMotion.peek());

  // The snapshot with the link comes a moment after the event that says "ready".
  useEffect(() => {
    if (source === null && link !== null) setSource(link);
  }, [link]);
  useEffect(() => {
    const expiry = linkExpiry(task.output_url);
    if (expiry === null) return;
    const inMs = Math.min(LONGEST_TIMER_MS, Math.max(1_000, expiry - serverNow() - BEFORE_EXPIRY_MS));
    const timer = setTimeout(() => void fetchLink(task.task_id), inMs);
    return () => clearTimeout(timer);
  }, [task.output_url]);

  const failed = async (): Promise<void> => {
    setState("renewing");
    const fresh = await fetchLink(task.task_id);
    if (fresh !== null && fresh !== source) {
      setSource(fresh);
      setState("playing");
    } else {
      setState("unplayable");
    }
  };

  const [width, height] = (task.inputs?.aspect_ratio ?? "16:9").split(":").map((side) => (Number(side) || 1) * 80);
  return (
    <div class="player">
      {source !== null && state !== "unplayable" && (
        <video
          key={source}
          src={source}
          controls
          playsInline
          muted={autoplay}
          autoPlay={autoplay}
          preload="metadata"
          width={width}
          height={height}
          aria-label={task.inputs ? `Video: ${task.inputs.prompt.slice(0, 120)}` : "Video"}
          onError={() => void failed()}
        />
      )}
      {state === "renewing" && <p class="player-note">Getting a new link.</p>}
      {state === "unplayable" && (
        <p class="player-note">
          This browser can't play the file.{" "}
          <a href={link ?? undefined} download={`${task.task_id}.mp4`}>
            Download it.
          </a>
        </p>
      )}
    </div>
  );
}

/** Reads the task again for its link; null when there is none to be had. */
async function fetchLink(id: string): Promise<string | null> {
  const answer = await getTask(id, { etag: null, seenVersion: 0, signal: new AbortController().signal });
  if (answer.kind !== "ok") return null;
  keep(answer.body);
  return localLink(answer.body.output_url);
}
