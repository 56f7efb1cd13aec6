// A moment, near or far, with the full time in its title.
import { fullTime, when } from "../format/time";
import { serverNow, useSeconds } from "../state/clock";

export function When({ at }: { at: string }) {
  useSeconds(serverNow() - Date.parse(at) < 3_600_000);
  return (
    <time dateTime={at} title={fullTime(at)}>
      {when(at, serverNow())}
    </time>
  );
}
