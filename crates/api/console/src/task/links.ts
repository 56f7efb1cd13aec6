// The address of a video, in the forms that it is used in.

/** On this origin, whatever public address the server put before it: the policy lets the page load from here only. */
export function localLink(url: string | null): string | null {
  if (url === null) return null;
  const { pathname, search } = new URL(url, location.origin);
  return pathname + search;
}

/** Whole, for others. */
export const publicLink = (url: string): string => new URL(url, location.origin).href;

/** When the signature runs out, in milliseconds since 1970; null for an address without one. */
export function linkExpiry(url: string | null): number | null {
  if (url === null) return null;
  const exp = Number(new URL(url, location.origin).searchParams.get("exp"));
  return exp > 0 ? exp * 1_000 : null;
}
