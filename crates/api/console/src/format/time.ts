// Times as people read them. The full time always goes in the title of the <time> that shows one of these.

const two = (n: number): string => String(n).padStart(2, "0");

/** A length that passed: 0.4 s, 31 s, 1:12, 1:02:03. */
export function duration(ms: number): string {
  if (ms < 9_950) return `${(Math.max(0, ms) / 1_000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1_000);
  return seconds < 60 ? `${seconds} s` : clock(seconds);
}

/** Whole seconds as a running clock: 0:05, 1:12, 1:02:03. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** A range of seconds: 40-70 s, 2-3 min; one figure where both ends are the same. */
export function range(from: number, to: number): string {
  if (to < 120) return from === to ? `${to} s` : `${from}-${to} s`;
  const low = Math.max(1, Math.round(from / 60));
  const high = Math.round(to / 60);
  return low === high ? `${high} min` : `${low}-${high} min`;
}

/** How long something usually takes: 1 s, 45 s, 1-2 min. */
export function usual(ms: number): string {
  const seconds = Math.max(1, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes}-${minutes + 1} min`;
}

/** A wall clock time of today: 14:30. */
export const timeOfDay = (at: string | number): string => {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
};

/** With milliseconds, for the trail: 14:02:11.610. */
export const exactTime = (at: string): string => {
  const date = new Date(at);
  return `${timeOfDay(at)}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** How long ago, near; when, further off: now, 2 min ago, 14:02, 28 Nov 14:02. */
export function when(at: string, now: number): string {
  const date = new Date(at);
  const ago = now - date.getTime();
  if (ago < 60_000) return "now";
  if (ago < 3_600_000) return `${Math.floor(ago / 60_000)} min ago`;
  if (date.toDateString() === new Date(now).toDateString()) return timeOfDay(at);
  return `${date.getDate()} ${MONTHS[date.getMonth()]} ${timeOfDay(at)}`;
}

/** The full time, for titles. */
export const fullTime = (at: string): string => {
  const date = new Date(at);
  return `${date.getDate()} ${MONTHS[date.getMonth()]} ${date.getFullYear()} ${exactTime(at)}`;
};
