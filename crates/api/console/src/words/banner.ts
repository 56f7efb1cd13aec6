// What the header AIVideo-Degraded means for somebody who wants a video. The worst comes first; unknown parts are named.
const SENTENCES: [part: string, sentence: string][] = [
  ["postgresql", "New videos can't be accepted now; what you see may be old."],
  ["control", "New starts are on hold; you can still send videos."],
  ["queue", "New videos may start late."],
  ["realtime", "Live updates are slow."],
];

export function bannerSentence(parts: string[]): string | null {
  const lower = parts.map((part) => part.toLowerCase());
  for (const [part, sentence] of SENTENCES) {
    if (lower.some((given) => given === part || given.endsWith(`-${part}`) || given.endsWith(`_${part}`))) return sentence;
  }
  // The cache only costs time; nobody has to know.
  const other = lower.filter((part) => !part.includes("cache"));
  return other.length > 0 ? `Part of the service is degraded (${other.join(", ")}).` : null;
}
