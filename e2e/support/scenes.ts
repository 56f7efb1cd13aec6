// The pages and states that are looked at from several sides: by axe, by width, by eye.
import { problem, type Fake } from "./fake";
import type { Page } from "@playwright/test";

export interface Scene {
  name: string;
  /** Statuses that the scene provokes. */
  refuses?: number;
  prepare: (fake: Fake) => string;
  act?: (page: Page) => Promise<void>;
}

const PROMPTS = [
  "Paper boat drifts down a rainy street at dusk, close to the water, reflections of neon signs",
  "Slow pan over a potter's workshop in morning light",
  "A red kite climbs above dunes, wind in the sand",
  "Lighthouse in a storm, long exposure, waves breaking over the pier",
];

function many(fake: Fake): void {
  PROMPTS.forEach((prompt, n) => {
    const task = fake.add({ model: n % 2 ? "mock-pro" : "mock-fast", created_at: new Date(Date.now() - 86_400_000 * n - 300_000).toISOString() });
    task.inputs = { ...task.inputs, prompt };
    if (n === 0) fake.fail(task.task_id, "moderated_input");
    else if (n === 3) fake.cancel(task.task_id);
    else fake.succeed(task.task_id);
  });
}

function walk(fake: Fake, to: "queued" | "generating" | "ready" | "failed" | "reconciling"): string {
  const task = fake.add({ model: "mock-slow", created_at: new Date(Date.now() - 31_000).toISOString() });
  task.inputs = { ...task.inputs, prompt: PROMPTS[0], seed: 41 };
  const id = task.task_id;
  if (to === "queued") {
    fake.set(id, { queue_position: 4, eta: { from_seconds: 40, to_seconds: 70 }, wait_reason: "user_concurrency", wait_detail: { used: 1, limit: 1 } });
    return id;
  }
  fake.move(id, "scheduled", { status: "SCHEDULING", stage: "dispatching", attempt_no: 1 });
  if (to === "reconciling") {
    fake.move(id, "reconciling", { status: "RECONCILING", stage: "reconciling" });
    return id;
  }
  fake.move(id, "submitted", { status: "PROVIDER_SUBMITTED", stage: "provider_queued" });
  fake.move(id, "running", { status: "RUNNING", stage: "provider_generating" });
  fake.set(id, { progress: 42, eta: { from_seconds: 30, to_seconds: 40 } });
  if (to === "generating") return id;
  if (to === "failed") {
    fake.fail(id, "provider_internal");
    return id;
  }
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  fake.succeed(id);
  return id;
}

async function press(page: Page): Promise<void> {
  await page.getByLabel("Prompt", { exact: true }).fill(PROMPTS[2]!);
  await page.locator("#generate").click();
  await page.locator(".refusal p, .field-error").first().waitFor();
}

const refuse = (fake: Fake, reply: import("./fake").Reply): void => fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : reply));

export const SCENES: Scene[] = [
  { name: "create-empty", prepare: () => "/" },
  {
    name: "create",
    prepare: (fake) => {
      many(fake);
      walk(fake, "generating");
      fake.held = 60;
      return "/";
    },
  },
  {
    name: "create-queued",
    prepare: (fake) => {
      many(fake);
      walk(fake, "queued");
      return "/";
    },
  },
  {
    name: "402",
    refuses: 402,
    prepare: (fake) => {
      many(fake);
      fake.available = 70;
      fake.held = 30;
      refuse(fake, problem(402, "insufficient_credits"));
      return "/";
    },
    act: async (page) => {
      await page.locator("[name=model]").first().waitFor();
      if (await page.locator("select[name=model]").count()) await page.locator("select[name=model]").selectOption("mock-pro");
      else await page.getByLabel("mock-pro").check();
      await press(page);
    },
  },
  {
    name: "429",
    refuses: 429,
    prepare: (fake) => {
      many(fake);
      refuse(fake, problem(429, "rate_limited", { scope: "user", policy: "user", limit: 5, retry_after_ms: 42_000 }));
      return "/";
    },
    act: press,
  },
  {
    name: "422",
    refuses: 422,
    prepare: (fake) => {
      many(fake);
      refuse(fake, problem(422, "validation_failed", { errors: [{ field: "seed", code: "out_of_range", message: "must be from 0 to 4294967295" }] }));
      return "/";
    },
    act: press,
  },
  { name: "task-generating", prepare: (fake) => `/#/t/${walk(fake, "generating")}` },
  { name: "task", prepare: (fake) => `/#/t/${walk(fake, "ready")}` },
  { name: "task-reconciling", prepare: (fake) => `/#/t/${walk(fake, "reconciling")}` },
  { name: "failed", prepare: (fake) => `/#/t/${walk(fake, "failed")}` },
  {
    name: "tasks",
    prepare: (fake) => {
      many(fake);
      walk(fake, "generating");
      return "/#/tasks";
    },
  },
  {
    name: "connect",
    refuses: 404,
    prepare: (fake) => {
      fake.demo = false;
      return "/";
    },
  },
  {
    name: "connect-refused",
    refuses: 401,
    prepare: (fake) => {
      fake.demo = false;
      fake.on("POST /browser-tokens", problem(401, "unauthenticated"));
      return "/";
    },
    act: async (page) => {
      await page.getByLabel("API key").fill("avk_wrong");
      await page.getByRole("button", { name: "Connect" }).click();
      await page.locator("#key-error:not(:empty)").waitFor();
    },
  },
];

/** Opens a scene and waits until it stands still. */
export async function show(page: Page, fake: Fake, scene: Scene): Promise<void> {
  await page.goto(fake.url + scene.prepare(fake));
  await page.locator("h1").first().waitFor();
  await page.waitForLoadState("networkidle", { timeout: 1_500 }).catch(() => undefined);
  await scene.act?.(page);
}
