// The routes this page uses, by name. Paths are the API's own; nothing here is private to the console.
import { call } from "./call";
import type { Answer } from "./http";
import type { Accepted, CreditBalance, GenerationRequest, Me, Model, Page, Quote, Task } from "./types";

export const getMe = (): Promise<Answer<Me>> => call("/me");
export const getModels = (): Promise<Answer<Page<Model>>> => call("/models");
export const getCredits = (): Promise<Answer<CreditBalance>> => call("/credits");

export const submit = (body: GenerationRequest, idempotencyKey: string): Promise<Answer<Accepted>> =>
  call("/generations", { method: "POST", body, headers: { "Idempotency-Key": idempotencyKey } });

export const dryRun = (body: GenerationRequest, signal: AbortSignal): Promise<Answer<Quote>> =>
  call("/generations?dry_run=true", { method: "POST", body, signal });

export interface TaskRead {
  etag: string | null;
  /** The newest version seen: caches answer with nothing older. */
  seenVersion: number;
  signal: AbortSignal;
}

export function getTask(id: string, { etag, seenVersion, signal }: TaskRead): Promise<Answer<Task>> {
  const query = seenVersion > 0 ? `?after_version=${seenVersion}` : "";
  return call(`/tasks/${encodeURIComponent(id)}${query}`, { headers: etag ? { "If-None-Match": etag } : {}, signal });
}

export const cancelTask = (id: string): Promise<Answer<Task>> =>
  call(`/tasks/${encodeURIComponent(id)}/cancel`, { method: "POST" });

export interface TaskFilter {
  status?: string | undefined;
  ids?: string[] | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export function listTasks(filter: TaskFilter): Promise<Answer<Page<Task>>> {
  const query = new URLSearchParams();
  if (filter.status) query.set("status", filter.status);
  if (filter.ids) query.set("ids", filter.ids.join(","));
  if (filter.cursor) query.set("cursor", filter.cursor);
  if (filter.limit) query.set("limit", String(filter.limit));
  return call(`/tasks?${query}`);
}
