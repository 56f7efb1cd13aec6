// A refusal, whatever form it came in. A proxy's HTML page becomes a problem too, so that no screen has to ask.
import type { ProblemBody } from "./types";

export interface Problem extends ProblemBody {
  /** From the body, else from Retry-After; null when the server named no time. */
  retryAfterMs: number | null;
  /** The window of the limit that refused, in seconds, from RateLimit-Policy; null when unknown. */
  windowSeconds: number | null;
}

export async function readProblem(response: Response): Promise<Problem> {
  let body: Partial<ProblemBody> = {};
  try {
    const parsed: unknown = await response.json();
    if (parsed && typeof parsed === "object") body = parsed as Partial<ProblemBody>;
  } catch {
    // Not JSON: the status says enough.
  }
  const retryAfter = Number(response.headers.get("Retry-After") ?? NaN);
  return {
    ...body,
    type: body.type ?? "about:blank",
    title: body.title ?? `The server answered ${response.status}`,
    status: response.status,
    code: body.code ?? `http_${response.status}`,
    request_id: body.request_id ?? response.headers.get("X-Request-Id"),
    errors: Array.isArray(body.errors) ? body.errors : [],
    retryAfterMs: body.retry_after_ms ?? (Number.isFinite(retryAfter) ? retryAfter * 1000 : null),
    windowSeconds: policyWindow(response.headers.get("RateLimit-Policy"), body.policy ?? null),
  };
}

/** `w` of the named policy in a RateLimit-Policy header: `"user";q=5;w=60, "tenant";q=50;w=60`. */
export function policyWindow(header: string | null, policy: string | null): number | null {
  for (const item of (header ?? "").split(",")) {
    const [name, ...parameters] = item.split(";").map((part) => part.trim());
    if (policy && name?.replaceAll('"', "") !== policy) continue;
    const w = parameters.find((parameter) => parameter.startsWith("w="));
    if (w) return Number(w.slice(2)) || null;
  }
  return null;
}
