// What a task does is seen as it happens: by the stream, and by asking while there is none.
import { CUT, expect, status, test } from "../support/test";
import type { Fake } from "../support/fake";

const running = { status: "RUNNING", stage: "provider_generating", attempt_no: 1 };

function start(fake: Fake, model = "mock-slow"): string {
  const { task_id } = fake.add({ model });
  fake.move(task_id, "scheduled", { status: "SCHEDULING", stage: "dispatching", attempt_no: 1 });
  fake.move(task_id, "submitted", { status: "PROVIDER_SUBMITTED", stage: "provider_queued" });
  fake.move(task_id, "running", running);
  return task_id;
}

test("from queue to player without a reload", async ({ page, fake, open }) => {
  await open();
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await page.locator("#generate").click();
  const text = page.locator(".status-text");
  await expect(text).toHaveText("In line.");
  const id = [...fake.tasks.keys()][0]!;
  fake.set(id, { queue_position: 3 });
  await expect(text).toHaveText("Number 3 in line.");
  fake.move(id, "scheduled", { status: "SCHEDULING", stage: "dispatching", attempt_no: 1 });
  await expect(text).toHaveText("Sending to the provider.");
  fake.move(id, "submitted", { status: "PROVIDER_SUBMITTED", stage: "provider_queued" });
  await expect(text).toHaveText("Accepted, waiting at the provider.");
  fake.move(id, "running", running);
  await expect(text).toHaveText("Generating, usually 1 s.");
  await expect(page.getByRole("progressbar")).not.toHaveAttribute("aria-valuenow");
  fake.progress(id, 42);
  await expect(text).toHaveText("Generating 42%.");
  await expect(page.getByRole("progressbar")).toHaveAttribute("aria-valuenow", "42");
  await expect(page).toHaveTitle("42% - AIVideo");
  // Older progress arriving late changes nothing.
  (fake as any).push(id, `event: progress\ndata: {"version": ${fake.tasks.get(id)!.version}, "progress": 17}\n\n`);
  (fake as any).push(id, `event: progress\ndata: {"version": 1, "progress": 99}\n\n`);
  fake.progress(id, 43);
  await expect(text).toHaveText("Generating 43%.");
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  await expect(text).toHaveText("Saving your video.");
  fake.available = 1_230;
  fake.held = 0;
  fake.succeed(id);
  await expect(text).toHaveText(/^Ready in .* 10 credits charged\.$/);
  await expect(page.locator(".money")).toHaveText("1,230 credits");
  const video = page.locator(".player video");
  await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.currentTime)).toBeGreaterThan(0);
  expect(await video.evaluate((element: HTMLVideoElement) => element.muted)).toBe(true);
  await expect(page.locator(".live")).toHaveText("");
  await expect(page.locator(".step-past")).toHaveCount(4);
});

test("a finished video does not play by itself when its page is opened", async ({ page, fake, open }) => {
  const id = start(fake);
  fake.succeed(id);
  await open(`/#/t/${id}`);
  const video = page.locator(".player video");
  await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.readyState)).toBeGreaterThan(0);
  expect(await video.evaluate((element: HTMLVideoElement) => element.paused && element.currentTime === 0)).toBe(true);
});

test("the stream is cut three times: polling, live again, no step missed", async ({ page, fake, open, watch }) => {
  watch.expects(CUT);
  await page.clock.install();
  const id = start(fake);
  fake.set(id, { poll_after_ms: 2_000 });
  await open(`/#/t/${id}`);
  const live = page.locator(".live");
  await expect(live).toHaveText("Live");
  // Cut once: the next connection goes on behind what was seen.
  fake.cutStreams();
  await page.clock.runFor(1_500);
  await expect.poll(() => fake.openStreams).toBe(1);
  expect(fake.asked(`GET /tasks/${id}/events`).at(-1)?.headers["last-event-id"]).toBe("4");
  // Cut again, and nobody answers: after two failures the page asks by itself.
  fake.streamsRefused = true;
  fake.cutStreams();
  await page.clock.runFor(3_000);
  await expect(live).toHaveText("Checking every 2 s");
  fake.set(id, { progress: 64 });
  await page.clock.runFor(2_500);
  await expect(page.locator(".status-text")).toHaveText("Generating 64%.");
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  await page.clock.runFor(2_500);
  await expect(page.locator(".status-text")).toHaveText("Saving your video.");
  expect(fake.asked(`GET /tasks/${id}`).some((seen) => seen.headers["if-none-match"])).toBe(true);
  // The stream is tried again every 30 s.
  fake.streamsRefused = false;
  await page.clock.runFor(31_000);
  await expect(live).toHaveText("Live");
  fake.succeed(id);
  await expect(page.locator(".status-text")).toHaveText(/^Ready in/);
  await expect(page.locator(".trail li")).toHaveCount(6);
  await expect(page.locator(".trail-line")).toHaveText(["Accepted", "Its turn came", "Sent to mock", "The provider began", "The provider is done; saving the video", "Ready"]);
});

test("the end is seen without any stream, and the trail comes after", async ({ page, fake, open, watch }) => {
  watch.expects(CUT);
  fake.streamsRefused = true;
  const id = start(fake);
  fake.set(id, { poll_after_ms: 300 });
  await open(`/#/t/${id}`);
  await expect(page.locator(".status-text")).toHaveText(/^Generating/);
  await expect(page.locator(".live")).toHaveText(/^Checking every/);
  fake.streamsRefused = false;
  fake.succeed(id);
  await expect(page.locator(".status-text")).toHaveText(/^Ready in/);
  await expect(page.locator(".trail li")).toHaveCount(5);
  await expect(page.locator(".live")).toHaveText("");
});

test("25 s of silence are a dead stream", async ({ page, fake, open, watch }) => {
  watch.expects(CUT);
  await page.clock.install();
  const id = start(fake);
  await open(`/#/t/${id}`);
  await expect(page.locator(".live")).toHaveText("Live");
  await page.clock.runFor(24_000);
  expect(fake.asked(`GET /tasks/${id}/events`)).toHaveLength(1);
  await page.clock.runFor(2_500);
  await expect.poll(() => fake.asked(`GET /tasks/${id}/events`).length).toBe(2);
});

test("a hidden tab gives its stream back after 30 s and catches up when shown", async ({ page, fake, open }) => {
  await page.clock.install();
  const id = start(fake);
  await open(`/#/t/${id}`);
  await expect(page.locator(".live")).toHaveText("Live");
  const beat = setInterval(() => (fake as any).push(id, ": still here\n\n"), 20);
  const hide = (hidden: boolean) =>
    page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  for (let n = 0; n < 29; n++) await page.clock.runFor(1_000);
  expect(fake.openStreams).toBe(1);
  await page.clock.runFor(2_000);
  await expect.poll(() => fake.openStreams).toBe(0);
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  await hide(false);
  await expect(page.locator(".status-text")).toHaveText("Saving your video.");
  await expect.poll(() => fake.openStreams).toBe(1);
  clearInterval(beat);
});

test("one stream, for what is looked at; the others of the list are read together", async ({ page, fake, open }) => {
  await page.clock.install();
  const ids = [start(fake), start(fake), start(fake)];
  await open();
  await expect(page.locator(".live")).toHaveText("Live");
  expect(fake.openStreams).toBe(1);
  fake.set(ids[0]!, { progress: 12 });
  await page.clock.runFor(5_000);
  await expect(page.locator(".rows .row").nth(2)).toContainText("Generating 12%");
  const batch = fake.asked("GET /tasks").find((seen) => seen.query.has("ids"));
  expect(batch?.query.get("ids")?.split(",").sort()).toEqual([ids[0], ids[1]].sort());
});

test("offline is said, the draft stays, and the page catches up", async ({ page, context, fake, open, watch }) => {
  watch.expects(/ERR_INTERNET_DISCONNECTED/, CUT);
  const id = start(fake);
  await open();
  await page.getByLabel("Prompt", { exact: true }).fill("Half a thought");
  await expect(page.locator(".live")).toHaveText("Live");
  await context.setOffline(true);
  fake.cutStreams();
  await expect(page.locator(".banner")).toHaveText("You are offline. Videos go on; your draft is kept.");
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  await page.waitForTimeout(300);
  await context.setOffline(false);
  await expect(page.locator(".banner")).toHaveCount(0);
  await expect(page.locator(".status-text")).toHaveText("Saving your video.");
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("Half a thought");
});

test("what is not there, or not ours, says so", async ({ page, open, watch }) => {
  watch.expects(status(404));
  await open("/#/t/task_0192f000000070008000000000009999");
  await expect(page.getByRole("heading", { name: "Not found" })).toBeVisible();
  await expect(page.getByText("This video does not exist, or it is not yours.")).toBeVisible();
  await page.goto(page.url().replace(/#.*/, "#/nowhere"));
  await expect(page.getByText("There is no such page.")).toBeVisible();
});

test("a time left that was reckoned without progress is not put beside a percentage", async ({ page, fake, open }) => {
  const id = start(fake);
  fake.set(id, { eta: { from_seconds: 60, to_seconds: 90 }, poll_after_ms: 1_500 });
  await open(`/#/t/${id}`);
  await expect(page.locator(".live")).toHaveText("Live");
  await expect(page.locator(".status-text")).toHaveText("Generating, usually 1-2 min.");
  const read = fake.asked(`GET /tasks/${id}`).length;
  fake.progress(id, 33);
  await expect(page.locator(".status-text")).toHaveText("Generating 33%.");
  fake.set(id, { eta: { from_seconds: 3, to_seconds: 4 } });
  await expect(page.locator(".status-text")).toHaveText("Generating 33%, about 0:04 left.");
  expect(fake.asked(`GET /tasks/${id}`).length).toBeGreaterThan(read);
});
