// The exact text of everything that a task can be: each wait reason, stage and failure, and codes nobody knows yet.
import { expect, test } from "../support/test";
import type { Fake, FakeTask } from "../support/fake";
import type { Page } from "@playwright/test";

const AT = "2026-11-28T14:30:00.000Z";

async function show(page: Page, fake: Fake, id: string, sentence: string | RegExp, more: string | RegExp = ""): Promise<void> {
  await page.goto(`${fake.url}/#/t/${id}`);
  await expect(page.getByRole("complementary").locator(`code[title="${id}"]`)).toBeVisible();
  await expect(page.locator(".status-text")).toHaveText(sentence);
  await expect(page.locator(".status-more")).toHaveText(more);
}

const waits: [reason: string | null, detail: object | null, text: string][] = [
  ["user_concurrency", { used: 1, limit: 1 }, "1 of your 1 places are running. This starts when one ends."],
  ["tenant_concurrency", { used: 10, limit: 10 }, "Your team has 10 of 10 running."],
  ["model_concurrency", { used: 10, limit: 10 }, "mock-pro is full, 10 of 10."],
  ["provider_concurrency", { used: 200, limit: 200 }, "The provider is full, 200 of 200."],
  ["provider_rate", {}, "Sending as fast as the provider allows."],
  ["provider_paused", null, "mock-pro is paused by the operator. Your place is kept."],
  ["breaker_open", { until: AT }, "The provider is failing. Next try at 14:30. Your place is kept."],
  ["breaker_open", {}, "The provider is failing. Your place is kept."],
  ["provider_backoff", { until: AT }, "The provider asked us to wait until 14:30."],
  ["control_unavailable", null, "Starts are on hold while we recover. Place and credits are safe."],
  ["user_concurrency", null, "Waiting for a place."],
  ["a_new_reason", {}, "Waiting for a place."],
  [null, null, "Waiting for a place."],
];

for (const [reason, detail, text] of waits) {
  test(`waiting: ${reason} ${detail === null ? "without figures" : JSON.stringify(detail)}`, async ({ page, fake, open }) => {
    const task = fake.add({ model: "mock-pro", wait_reason: reason, wait_detail: detail, queue_position: 4, eta: { from_seconds: 40, to_seconds: 70 } });
    await open();
    await show(page, fake, task.task_id, "Number 4 in line. Starts in about 40-70 s.", text);
  });
}

test("waiting: not_before counts down to the next try", async ({ page, fake, open }) => {
  const until = new Date(Date.now() + 8_000).toISOString();
  const task = fake.add({ tries: 1, attempt_no: 1, wait_reason: "not_before", wait_detail: { until } });
  await open();
  await show(page, fake, task.task_id, "In line.", /^The last try was not accepted\. Try 2 of 3 in 0:0[678]\.$/);
});

const stages: [changes: Partial<FakeTask>, sentence: string, more: string][] = [
  [{ status: "QUEUED", stage: "queued" }, "In line.", "Waiting for a place."],
  [{ status: "SCHEDULING", stage: "dispatching" }, "Sending to the provider.", ""],
  [{ status: "PROVIDER_SUBMITTED", stage: "provider_queued" }, "Accepted, waiting at the provider.", ""],
  [{ status: "RUNNING", stage: "provider_generating", progress: 42, eta: { from_seconds: 30, to_seconds: 40 } }, "Generating 42%, about 0:40 left.", ""],
  [{ status: "RUNNING", stage: "provider_generating", progress: 42 }, "Generating 42%.", ""],
  [{ status: "RUNNING", stage: "provider_generating", model: "mock-slow" }, "Generating, usually 1-2 min.", ""],
  [
    { status: "RECONCILING", stage: "reconciling", deadline_at: AT },
    "The provider did not confirm this job. We are checking and will not send it twice.",
    "10 credits stay held until 14:30 at most.",
  ],
  [{ status: "POST_PROCESSING", stage: "fetching_output" }, "Saving your video.", ""],
  [{ status: "RUNNING", stage: "canceling" }, "Canceling, up to 10 s.", ""],
  [{ status: "DREAMING", stage: "rem_sleep" }, "In progress (rem_sleep).", ""],
];

for (const [changes, sentence, more] of stages) {
  test(`stage: ${changes.stage} ${changes.progress ?? ""}${changes.eta ? " with time left" : ""}`, async ({ page, fake, open }) => {
    const task = fake.add({ attempt_no: 1, ...changes });
    await open();
    await show(page, fake, task.task_id, sentence, more);
  });
}

test("generating for much longer than usual says when it stops", async ({ page, fake, open }) => {
  const task = fake.add({ model: "mock-fast", deadline_at: AT });
  fake.move(task.task_id, "running", { status: "RUNNING", stage: "provider_generating" });
  await page.clock.install();
  await open();
  await show(page, fake, task.task_id, "Generating, usually 1 s.");
  await page.clock.fastForward(11_000);
  await expect(page.locator(".status-text")).toHaveText("Longer than usual. Stops at 14:30; credits then return.");
});

const failures: [code: string, sentence: string, way: string, changes?: Partial<FakeTask>][] = [
  ["invalid_input", "mock-fast can't use these settings: aspect_ratio.", "Edit prompt", { error_message: "aspect_ratio" }],
  ["invalid_input", "mock-fast can't use these settings.", "Edit prompt"],
  ["moderated_input", "The provider's safety check refused the prompt.", "Edit prompt"],
  ["moderated_output", "The provider's safety check withheld the result.", "Edit prompt"],
  ["provider_auth", "mock-fast is unavailable; the fault is ours.", "Other model"],
  ["region_blocked", "mock-fast is unavailable; the fault is ours.", "Other model"],
  ["provider_credit", "mock-fast is unavailable; the fault is ours.", "Other model"],
  ["rate_limited", "The provider was too busy in all 3 tries.", "Run again"],
  ["concurrency_full", "The provider was too busy in all 3 tries.", "Run again"],
  ["overloaded", "The provider was too busy in all 3 tries.", "Run again"],
  ["provider_internal", "The provider failed while generating.", "Run again"],
  ["provider_lost", "The provider failed while generating.", "Run again"],
  ["model_gone", "mock-fast was withdrawn.", "Other model"],
  ["deadline_exceeded", "Not ready by 14:30, so we stopped.", "Run again"],
  ["unconfirmed", "The provider never confirmed this job. An operator was told.", "Run again"],
  ["bad_output", "The provider's file does not play.", "Run again"],
  ["cosmic_ray", "It failed (cosmic_ray).", "Run again"],
];

for (const [code, sentence, way, changes] of failures) {
  test(`failed: ${code}${changes ? " with the field" : ""}`, async ({ page, fake, open }) => {
    const task = fake.add({ attempt_no: 3, tries: 3, deadline_at: AT });
    fake.fail(task.task_id, code, changes);
    await open();
    await show(page, fake, task.task_id, `${sentence} 10 credits are back.`);
    await expect(page.locator(".actions .primary")).toHaveText(way);
    await expect(page.getByRole("button", { name: "Edit prompt" })).toBeVisible();
  });
}

test("the credits of an end are read from the figures", async ({ page, fake, open }) => {
  const ended = { ended_at: new Date().toISOString() };
  const kept = fake.add();
  fake.fail(kept.task_id, "unconfirmed", { credits: { quoted: 1_240, held: 1_240, charged: 0, released: 0 } });
  const nothing = fake.add();
  fake.fail(nothing.task_id, "bad_output", { credits: { quoted: 0, held: 0, charged: 0, released: 0 } });
  const canceled = fake.add();
  fake.move(canceled.task_id, "canceled", { status: "CANCELED", stage: "done", credits: { quoted: 1, held: 0, charged: 0, released: 1 }, ...ended });
  await open();
  await show(page, fake, kept.task_id, /1,240 credits are still held\.$/);
  await show(page, fake, nothing.task_id, /Nothing was charged\.$/);
  await show(page, fake, canceled.task_id, "Canceled. 1 credit is back.");
});

test("ready says how long it took and what it cost", async ({ page, fake, open }) => {
  const task = fake.add({ created_at: new Date(Date.now() - 72_000).toISOString() });
  fake.succeed(task.task_id);
  await open();
  await show(page, fake, task.task_id, /^Ready in 1:1[23]\. 10 credits charged\.$/);
});

test("an unknown terminal-looking status stays neutral", async ({ page, fake, open }) => {
  fake.add({ status: "ARCHIVED", stage: "done" });
  await open("/#/tasks");
  await expect(page.locator(".badge")).toHaveText("ARCHIVED");
  await expect(page.locator(".badge")).toHaveClass(/tone-plain/);
});

for (const [header, text] of [
  ["control", "New starts are on hold; you can still send videos."],
  ["realtime", "Live updates are slow."],
  ["queue", "New videos may start late."],
  ["postgresql", "New videos can't be accepted now; what you see may be old."],
  ["realtime, postgresql", "New videos can't be accepted now; what you see may be old."],
  ["cache", null],
  ["astrolabe", "Part of the service is degraded (astrolabe)."],
] as const) {
  test(`degraded: ${header}`, async ({ page, fake, open }) => {
    fake.headers = { "AIVideo-Degraded": header };
    await open();
    await expect(page.locator(".money")).toContainText("1,240");
    if (text) await expect(page.locator(".banner")).toHaveText(text);
    else await expect(page.locator(".banner")).toHaveCount(0);
  });
}
