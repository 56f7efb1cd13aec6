// An API that says what a test tells it to, in the shapes of the real one. It knows no rules: a test sets tasks, events
// and answers, and looks at what the page asked for.
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import { Site } from "./site";

export interface Seen {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  body: any;
}

export interface Reply {
  status?: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** Cuts the connection without an answer. */
  cut?: boolean;
  /** Milliseconds before the answer, or before the cut. */
  delayMs?: number;
}

type Answerer = (seen: Seen) => Reply | undefined;

const VIDEO = readFileSync(join(import.meta.dirname, "clip.mp4"));

export const MODELS = [
  model("mock-fast", 2, 1_000),
  model("mock-pro", 20, 4_000),
  model("mock-slow", 2, 60_000),
];

function model(name: string, rate: number, usual: number) {
  return {
    model: name,
    title: name,
    duration_seconds: { min: 1, max: 10 },
    price_per_second: { "480p": rate, "720p": rate },
    default_resolution: "720p",
    aspect_ratios: ["16:9", "9:16", "1:1"],
    negative_prompt: true,
    seed: true,
    usual_duration_ms: usual,
  };
}

/** A task id that sorts by `n`. */
export const taskId = (n: number): string => `task_0192f00000007000800000000000${n.toString(16).padStart(4, "0")}`;

export interface FakeTask {
  [member: string]: any;
  task_id: string;
  version: number;
  status: string;
  stage: string;
}

export class Fake {
  readonly seen: Seen[] = [];
  tasks = new Map<string, FakeTask>();
  models: unknown[] = MODELS;
  available = 1_240;
  held = 0;
  scopes = ["read", "write"];
  user = "user_1";
  /** Whether POST /demo-token gives a token. */
  demo = true;
  tokenSeconds = 900;
  /** Answers a stream request by a refusal while true. */
  streamsRefused = false;
  /** Headers added to every answer. */
  headers: Record<string, string> = {};

  private site!: Site;
  private readonly answerers: Answerer[] = [];
  private readonly streams = new Map<ServerResponse, string>();
  private readonly events = new Map<string, any[]>();
  private tokens = 0;
  private next = 1;

  static async start(): Promise<Fake> {
    const fake = new Fake();
    fake.site = await Site.start((request, response, path) => fake.handle(request, response, path));
    return fake;
  }

  get url(): string {
    return this.site.url;
  }

  stop(): Promise<void> {
    return this.site.stop();
  }

  /** Answers these requests in this way until told otherwise; what comes last is asked first. */
  on(route: string, reply: Reply | ((seen: Seen) => Reply | undefined), times = Infinity): void {
    const [method, path] = route.split(" ");
    let left = times;
    this.answerers.unshift((seen) => {
      if (left <= 0 || seen.method !== method || seen.path !== path) return undefined;
      const answer = typeof reply === "function" ? reply(seen) : reply;
      if (answer) left -= 1;
      return answer;
    });
  }

  /** Requests of a route so far. */
  asked(route: string): Seen[] {
    const [method, path] = route.split(" ");
    return this.seen.filter((seen) => seen.method === method && seen.path === path);
  }

  /** Adds a task, with the events that led to where it is. */
  add(given: Partial<FakeTask> = {}): FakeTask {
    const n = this.next++;
    const at = given.created_at ?? new Date(Date.now() - 1_000).toISOString();
    const task: FakeTask = {
      task_id: taskId(n),
      version: 1,
      status: "QUEUED",
      stage: "queued",
      progress: null,
      queue_position: null,
      eta: null,
      wait_reason: null,
      wait_detail: null,
      provider: "mock",
      model: "mock-fast",
      attempt_no: 0,
      tries: 0,
      output_asset_id: null,
      output_url: null,
      error_code: null,
      error_message: null,
      inputs: { prompt: "Paper boat in the rain", negative_prompt: null, duration_seconds: 5, resolution: "720p", aspect_ratio: "16:9", seed: null, tags: [] },
      credits: { quoted: 10, held: 10, charged: 0, released: 0 },
      deadline_at: new Date(Date.now() + 1_800_000).toISOString(),
      poll_after_ms: 2_000,
      created_at: at,
      updated_at: at,
      ended_at: null,
      ...given,
    };
    this.tasks.set(task.task_id, task);
    this.events.set(task.task_id, []);
    if (given.status === undefined || given.version === undefined) this.record(task, "created", 10);
    return task;
  }

  /** Moves a task: one version more, one event, streamed to whoever listens. */
  move(id: string, type: string, changes: Partial<FakeTask>, credits = 0): void {
    const task = this.tasks.get(id)!;
    Object.assign(task, { queue_position: null, eta: null, wait_reason: null, wait_detail: null, progress: null }, changes);
    task.version += 1;
    this.record(task, type, credits);
  }

  /** Changes what is computed when read, without a version. */
  set(id: string, changes: Partial<FakeTask>): void {
    Object.assign(this.tasks.get(id)!, changes);
  }

  progress(id: string, progress: number): void {
    const task = this.tasks.get(id)!;
    task.progress = progress;
    this.push(id, `event: progress\ndata: ${JSON.stringify({ version: task.version, progress })}\n\n`);
  }

  /** To the end, with a link that works. */
  succeed(id: string): void {
    const asset = `asset_${id.slice(5)}`;
    const exp = Math.ceil(Date.now() / 3_600_000 + 1) * 3_600;
    const { quoted } = this.tasks.get(id)!.credits;
    this.move(
      id,
      "succeeded",
      {
        status: "SUCCEEDED",
        stage: "done",
        output_asset_id: asset,
        output_url: `/assets/${asset}/content?exp=${exp}&sig=abc`,
        credits: { quoted, held: 0, charged: quoted, released: 0 },
        ended_at: new Date().toISOString(),
      },
      quoted,
    );
  }

  fail(id: string, code: string, changes: Partial<FakeTask> = {}): void {
    const { quoted } = this.tasks.get(id)!.credits;
    this.move(
      id,
      "failed",
      { status: "FAILED", stage: "done", error_code: code, credits: { quoted, held: 0, charged: 0, released: quoted }, ended_at: new Date().toISOString(), ...changes },
      quoted,
    );
  }

  cancel(id: string): void {
    const { quoted } = this.tasks.get(id)!.credits;
    this.move(id, "canceled", { status: "CANCELED", stage: "done", credits: { quoted, held: 0, charged: 0, released: quoted }, ended_at: new Date().toISOString() }, quoted);
  }

  cutStreams(): void {
    for (const response of this.streams.keys()) response.destroy();
    this.streams.clear();
  }

  get openStreams(): number {
    return this.streams.size;
  }

  private record(task: FakeTask, type: string, credits: number): void {
    const event = {
      task_id: task.task_id,
      version: task.version,
      type,
      status: task.status,
      stage: task.stage,
      attempt_no: task.attempt_no,
      at: new Date().toISOString(),
      credits,
      error_code: task.error_code,
    };
    this.events.get(task.task_id)!.push(event);
    this.push(task.task_id, sse(event));
    if (task.stage === "done") this.end(task.task_id);
  }

  private push(id: string, text: string): void {
    for (const [response, followed] of this.streams) if (followed === id) response.write(text);
  }

  private end(id: string): void {
    for (const [response, followed] of this.streams) {
      if (followed !== id) continue;
      this.streams.delete(response);
      response.end();
    }
  }

  private async handle(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const seen: Seen = {
      method: request.method ?? "GET",
      path,
      query: new URL(request.url ?? "/", "http://fake").searchParams,
      headers: request.headers,
      body: text ? JSON.parse(text) : undefined,
    };
    this.seen.push(seen);
    if (path.endsWith("/events")) return this.stream(seen, response);
    if (path.startsWith("/assets/") && !this.answerers.some((answerer) => answerer(seen))) return this.video(request, response);
    const reply = this.scripted(seen) ?? this.usual(seen);
    if (reply.delayMs) await new Promise((resolve) => setTimeout(resolve, reply.delayMs));
    if (reply.cut) {
      response.destroy();
      return;
    }
    const status = reply.status ?? 200;
    const headers = { "X-Request-Id": `req-${this.seen.length}`, ...this.headers, ...reply.headers };
    if (status === 304) {
      response.writeHead(304, headers).end();
      return;
    }
    response.writeHead(status, { "Content-Type": status >= 400 ? "application/problem+json" : "application/json", ...headers });
    response.end(JSON.stringify(reply.body ?? {}));
  }

  private scripted(seen: Seen): Reply | undefined {
    for (const answerer of this.answerers) {
      const reply = answerer(seen);
      if (reply) return reply;
    }
    return undefined;
  }

  private usual(seen: Seen): Reply {
    const { method, path } = seen;
    const balance = { account_id: "acct_1", granted: 2_000, available: this.available, held: this.held, captured: 0, expired: 0, withdrawn: 0 };
    if (method === "POST" && path === "/demo-token") return this.demo ? this.token() : problem(404, "not_found");
    if (method === "POST" && path === "/browser-tokens") return this.token();
    if (path === "/me") return { body: { user_id: "user_0192f00000007000800000000000aaaa", user_name: "Ada", tenant_id: "ten_1", tenant_name: "Demo", scopes: this.scopes, tier: "enterprise", credits: balance } };
    if (path === "/credits") return { body: balance };
    if (path === "/models") return { body: { items: this.models, next_cursor: null } };
    if (path === "/tasks") return this.list(seen);
    if (method === "POST" && path === "/generations") return seen.query.has("dry_run") ? this.quote(seen) : this.accept(seen);
    const [, id, verb] = /^\/tasks\/([^/]+)(\/cancel)?$/.exec(path) ?? [];
    const task = id ? this.tasks.get(id) : undefined;
    if (!task) return problem(404, "not_found");
    if (verb) {
      if (task.status === "QUEUED") this.cancel(task.task_id);
      else this.move(task.task_id, "cancel_requested", { stage: "canceling" });
      return { status: task.status === "CANCELED" ? 200 : 202, body: task };
    }
    const etag = `W/"${task.version}-${task.progress}-${task.queue_position}-${task.wait_reason}"`;
    if (seen.headers["if-none-match"] === etag) return { status: 304, headers: { ETag: etag } };
    return { body: task, headers: { ETag: etag } };
  }

  private token(): Reply {
    this.tokens += 1;
    const expires = new Date(Date.now() + this.tokenSeconds * 1_000).toISOString();
    return { status: 201, body: { token: `avt_${this.tokens}`, expires_at: expires, user_id: this.user, scopes: this.scopes } };
  }

  private list({ query }: Seen): Reply {
    const limit = Number(query.get("limit") ?? 20);
    const ids = query.get("ids")?.split(",");
    const cursor = query.get("cursor");
    const found = [...this.tasks.values()]
      .filter((task) => !ids || ids.includes(task.task_id))
      .filter((task) => !query.get("status") || query.get("status")!.split(",").includes(task.status))
      .filter((task) => !cursor || task.task_id < cursor)
      .sort((a, b) => (a.task_id < b.task_id ? 1 : -1));
    const items = found.slice(0, limit).map((task) => ({ ...task, queue_position: null, eta: null, wait_reason: null, wait_detail: null }));
    return { body: { items, next_cursor: found.length > limit ? items.at(-1)!.task_id : null } };
  }

  private quote({ body }: Seen): Reply {
    const rate = MODELS.find((candidate) => candidate.model === body.model)?.price_per_second["720p"] ?? 2;
    return { body: { credits: rate * body.duration_seconds, decision: "starts_now", problem: null, binding_limit: null, eta: null } };
  }

  private readonly accepted = new Map<string, Reply>();

  /** One task per Idempotency-Key, as promised. */
  private accept({ body, headers }: Seen): Reply {
    const key = String(headers["idempotency-key"]);
    const before = this.accepted.get(key);
    if (before) return { ...before, headers: { "Idempotent-Replayed": "true" } };
    const rate = MODELS.find((candidate) => candidate.model === body.model)?.price_per_second["720p"] ?? 2;
    const quoted = rate * body.duration_seconds;
    const { model, ...inputs } = body;
    const task = this.add({
      model,
      inputs: { negative_prompt: null, seed: null, tags: [], ...inputs },
      credits: { quoted, held: quoted, charged: 0, released: 0 },
      created_at: new Date().toISOString(),
    });
    this.available -= quoted;
    this.held += quoted;
    const reply: Reply = { status: 202, body: { task_id: task.task_id, status: "QUEUED", credits_held: quoted, poll_after_ms: 1_000 } };
    this.accepted.set(key, reply);
    return reply;
  }

  private stream(seen: Seen, response: ServerResponse): void {
    const id = seen.path.split("/")[2]!;
    if (this.streamsRefused) {
      response.destroy();
      return;
    }
    const events = this.events.get(id);
    if (!events) {
      response.writeHead(404, { "Content-Type": "application/problem+json" }).end(JSON.stringify(problem(404, "not_found").body));
      return;
    }
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
    response.write(": hello\n\n");
    const last = Number(seen.headers["last-event-id"] ?? -1);
    for (const event of events) if (event.version > last) response.write(sse(event));
    if (this.tasks.get(id)!.stage === "done") {
      response.end();
      return;
    }
    this.streams.set(response, id);
    response.on("close", () => this.streams.delete(response));
  }

  private video(request: IncomingMessage, response: ServerResponse): void {
    const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? "");
    const from = range ? Number(range[1]) : 0;
    const to = range?.[2] ? Number(range[2]) : VIDEO.length - 1;
    response.writeHead(range ? 206 : 200, {
      "Content-Type": "video/mp4",
      "Accept-Ranges": "bytes",
      "Content-Length": to - from + 1,
      ...(range ? { "Content-Range": `bytes ${from}-${to}/${VIDEO.length}` } : {}),
    });
    response.end(VIDEO.subarray(from, to + 1));
  }
}

const sse = (event: { version: number }): string => `event: task\nid: ${event.version}\ndata: ${JSON.stringify(event)}\n\n`;

/** A refusal in the form of RFC 9457. */
export function problem(status: number, code: string, members: Record<string, unknown> = {}, headers: Record<string, string> = {}): Reply {
  return {
    status,
    body: { type: `/problems/${code}`, title: code.replaceAll("_", " "), status, detail: null, code, request_id: "req-problem", retryable: status >= 429, errors: [], ...members },
    headers,
  };
}
