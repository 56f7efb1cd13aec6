// A press of Generate makes one video, whatever happens to the answer.
import { problem } from "../support/fake";
import { CUT, expect, status, test } from "../support/test";
import type { Fake } from "../support/fake";
import type { Page } from "@playwright/test";

const sends = (fake: Fake) => fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"));
const keys = (fake: Fake) => new Set(sends(fake).map((seen) => seen.headers["idempotency-key"]));
const real = (reply: import("../support/fake").Reply) => (seen: import("../support/fake").Seen) => (seen.query.has("dry_run") ? undefined : reply);

async function write(page: Page, prompt: string): Promise<void> {
  await page.getByLabel("Prompt", { exact: true }).fill(prompt);
}

test("the body is the form, and empty members are left out", async ({ page, fake, open }) => {
  await open();
  await write(page, "A lighthouse");
  await page.getByLabel("Length").selectOption("7");
  await page.getByLabel("Aspect").selectOption("9:16");
  await page.getByText("More").click();
  await page.getByLabel("Seed").fill("41");
  await page.locator("#generate").click();
  await expect(page.locator(".rows .row").first()).toContainText("A lighthouse");
  expect(sends(fake)[0]?.body).toEqual({ model: "mock-fast", prompt: "A lighthouse", duration_seconds: 7, resolution: "720p", aspect_ratio: "9:16", seed: 41 });
  expect(String(sends(fake)[0]?.headers["idempotency-key"])).toMatch(/^console-[0-9a-f]{32}$/);
});

test("the row is there at once, the focus stays, a refusal takes the row away", async ({ page, fake, open, watch }) => {
  watch.expects(status(422));
  fake.on("POST /generations", real({ ...problem(422, "validation_failed", { errors: [{ field: "seed", code: "x", message: "no" }] }), delayMs: 600 }), 1);
  await open();
  await write(page, "A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator("#generate")).toHaveText("Sending");
  await expect(page.locator("#generate")).toBeFocused();
  await expect(page.locator(".rows .row").first()).toContainText("A lighthouse");
  await expect(page.locator(".rows .badge")).toHaveText("Sending");
  await expect(page.locator(".rows .row")).toHaveCount(0);
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("A lighthouse");
});

test("two presses make one video, two prompts make two", async ({ page, fake, open }) => {
  await open();
  await write(page, "One");
  await page.locator("#generate").dblclick();
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  await write(page, "Two");
  await page.keyboard.press("Control+Enter");
  await expect(page.locator(".rows a.row")).toHaveCount(2);
  expect(fake.tasks.size).toBe(2);
  expect(keys(fake).size).toBe(sends(fake).length);
});

test("an answer that was cut is asked for again under the same key", async ({ page, fake, open, watch }) => {
  watch.expects(CUT);
  let cutting = true;
  fake.on("POST /generations", (seen) => {
    if (seen.query.has("dry_run") || !cutting) return undefined;
    // Accepted, and then nobody heard of it. (Chromium repeats such a request by itself, too.)
    (fake as any).accept(seen);
    return { cut: true };
  });
  await open();
  await write(page, "A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator(".refusal")).toHaveText("Checking whether it arrived; you are not charged twice.");
  cutting = false;
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  await expect(page.locator(".refusal")).toHaveText("");
  expect(fake.tasks.size).toBe(1);
  expect(keys(fake).size).toBe(1);
  expect(sends(fake).length).toBeGreaterThan(1);
});

test("also when the page was loaded again in between", async ({ page, fake, open, watch }) => {
  watch.expects(CUT);
  let cutting = true;
  fake.on("POST /generations", (seen) => {
    if (seen.query.has("dry_run") || !cutting) return undefined;
    (fake as any).accept(seen);
    return { cut: true };
  });
  await open();
  await write(page, "A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator(".refusal")).toContainText("Checking");
  await page.reload();
  await expect(page.locator(".refusal")).toContainText("Checking");
  cutting = false;
  await expect(page.locator(".refusal")).toHaveText("");
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  expect(fake.tasks.size).toBe(1);
  expect(keys(fake).size).toBe(1);
});

test("a twin under way and a stumbling server are waited for", async ({ page, fake, open, watch }) => {
  watch.expects(status(409), status(500));
  fake.on("POST /generations", real(problem(500, "internal")), 1);
  fake.on("POST /generations", real(problem(409, "idempotency_in_progress", { retry_after_ms: 100 })), 1);
  await open();
  await write(page, "A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  expect(keys(fake).size).toBe(1);
  expect(sends(fake)).toHaveLength(3);
});

test("the draft outlives a reload", async ({ page, open }) => {
  await open();
  await write(page, "Half a thought");
  await page.getByLabel("mock-pro").check();
  await page.getByLabel("Length").selectOption("9");
  await page.reload();
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("Half a thought");
  await expect(page.getByLabel("mock-pro")).toBeChecked();
  await expect(page.getByLabel("Length")).toHaveValue("9");
});

test("running a task again sets a draft aside and brings it back", async ({ page, fake, open }) => {
  const task = fake.add({ model: "mock-pro" });
  fake.fail(task.task_id, "provider_internal");
  await open();
  await write(page, "My own half thought");
  await page.locator(".rows a.row").click();
  await page.getByRole("button", { name: "Edit prompt" }).click();
  await expect(page.getByLabel("Prompt", { exact: true })).toBeFocused();
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("Paper boat in the rain");
  await page.getByRole("button", { name: "Bring it back" }).click();
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("My own half thought");
});

test("Run again sends the same inputs as a new video", async ({ page, fake, open }) => {
  const task = fake.add({ model: "mock-pro" });
  fake.fail(task.task_id, "provider_internal");
  await open(`/#/t/${task.task_id}`);
  await page.getByRole("button", { name: "Run again" }).click();
  await expect(page.locator(".rows a.row")).toHaveCount(2);
  expect(sends(fake)[0]?.body).toEqual({ model: "mock-pro", prompt: "Paper boat in the rain", duration_seconds: 5, resolution: "720p", aspect_ratio: "16:9" });
});
