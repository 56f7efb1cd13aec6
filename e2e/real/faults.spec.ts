// The same road when things go wrong: at the provider, on the way, and when the user changes their mind.
import { demoIsConfigured } from "../support/demo";
import { expect, generate, sentence, shownTask, test } from "../support/real";
import { CUT, status } from "../support/test";

test.skip(!demoIsConfigured(), "set AIVIDEO_BIN or AIVIDEO_DEMO_JSON");

const cancel = { name: "Cancel", exact: true };

test("cancel while generating", async ({ page, backend, connect }) => {
  await backend.lasts("mock-slow", 60_000);
  const key = await connect(100);
  await generate(page, "Never mind", "mock-slow");
  await expect(sentence(page)).toHaveText(/^(Generating|Accepted)/, { timeout: 15_000 });
  await page.getByRole("button", cancel).click();
  await page.getByRole("button", { name: "Cancel video" }).click();
  await expect(sentence(page)).toHaveText("Canceled. 10 credits are back.", { timeout: 20_000 });
  await expect(page.locator(".money")).toHaveText("100 credits");
  expect(await backend.credits(key)).toMatchObject({ available: 100, held: 0 });
});

test("cancel in line ends at once", async ({ page, backend, connect }) => {
  await backend.lasts("mock-slow", 60_000);
  await connect(1_000, "free");
  await generate(page, "First", "mock-slow");
  await expect(sentence(page)).toHaveText(/^(Generating|Accepted)/, { timeout: 15_000 });
  await generate(page, "Second", "mock-slow");
  await expect(sentence(page)).toHaveText(/in line\./);
  await page.getByRole("button", cancel).click();
  await expect(sentence(page)).toHaveText("Canceled. 10 credits are back.");
});

test("cancel while it is being sent", async ({ page, backend, connect }) => {
  await backend.faults([{ on: "submit", match: { prompt_contains: "hesitant" }, action: { delay_ms: 3_000 } }]);
  await connect();
  await generate(page, "hesitant", "mock-slow");
  await expect(sentence(page)).toHaveText("Sending to the provider.", { timeout: 10_000 });
  await page.getByRole("button", cancel).click();
  await page.getByRole("button", { name: "Cancel video" }).click();
  await expect(sentence(page)).toHaveText("Canceled. 10 credits are back.", { timeout: 20_000 });
});

test("too late to cancel while it is being saved", async ({ page, demo, backend, connect, watch }) => {
  watch.expects(status(409));
  await backend.faults([{ on: "output", match: { prompt_contains: "heavy" }, action: { delay_ms: 6_000 }, times: 1 }]);
  await backend.lasts("mock-slow", 2_000);
  const key = await connect();
  await generate(page, "heavy", "mock-slow");
  await expect(sentence(page)).toHaveText("Saving your video.", { timeout: 20_000 });
  await expect(page.getByRole("button", cancel)).toHaveCount(0);
  const answer = await page.request.post(`${demo.url}/tasks/${await shownTask(page)}/cancel`, { headers: { Authorization: `Bearer ${key}` } });
  expect(answer.status()).toBe(409);
  expect((await answer.json()).code).toBe("too_late");
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 30_000 });
});

test("a job that the provider took without saying so is found, not sent twice", async ({ page, backend, connect }) => {
  await backend.faults([{ on: "submit", match: { prompt_contains: "unsaid" }, action: { drop: "after_accept" }, times: 1 }]);
  await connect();
  await generate(page, "unsaid");
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 60_000 });
  const id = await shownTask(page);
  const { submits_by_reference } = await backend.stats();
  expect(Object.entries(submits_by_reference).filter(([reference]) => reference.startsWith(id))).toEqual([[`${id}.1`, 1]]);
});

test("while nobody knows, the page says that it is being checked", async ({ page, backend, connect }) => {
  await backend.faults([
    { on: "submit", match: { prompt_contains: "doubtful" }, action: { drop: "after_accept" }, times: 1 },
    { on: "lookup", action: { status: 500 }, times: 6 },
  ]);
  await connect();
  await generate(page, "doubtful");
  await expect(sentence(page)).toHaveText("The provider did not confirm this job. We are checking and will not send it twice.", { timeout: 20_000 });
  await expect(page.locator(".status-more")).toHaveText(/^10 credits stay held until \d\d:\d\d at most\.$/);
  await backend.faults([]);
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 60_000 });
});

test("a failure says why and gives the credits back", async ({ page, backend, connect }) => {
  await backend.lasts("mock-fast", 300, 1);
  await connect(100);
  await generate(page, "Bound to fail");
  await expect(sentence(page)).toHaveText("The provider failed while generating. 10 credits are back.", { timeout: 60_000 });
  await expect(page.locator(".money")).toHaveText("100 credits");
  await backend.lasts("mock-fast", 1_000, 0);
  await page.getByRole("button", { name: "Run again" }).click();
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 20_000 });
});

test("POST's answer is cut, the page is loaded again: one task", async ({ page, backend, connect, watch }) => {
  watch.expects(CUT);
  const key = await connect();
  let cut = true;
  await page.route("**/generations", async (route) => {
    if (!cut) return route.continue();
    await route.fetch();
    await route.abort("connectionreset");
  });
  await generate(page, "Once only");
  await expect(page.locator(".refusal")).toHaveText("Checking whether it arrived; you are not charged twice.");
  await page.reload();
  cut = false;
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 30_000 });
  expect(await backend.tasksOf(key)).toHaveLength(1);
  expect(await backend.credits(key)).toMatchObject({ available: 9_990, held: 0 });
});

test("without streams the page asks, and comes to the same end", async ({ page, backend, connect, watch }) => {
  watch.expects(CUT);
  await backend.lasts("mock-slow", 6_000);
  await connect();
  await page.route("**/tasks/*/events", (route) => route.abort("connectionreset"));
  await generate(page, "Unstreamed", "mock-slow");
  await expect(page.locator(".live")).toHaveText(/^Checking every \d+ s$/);
  await expect(sentence(page)).toHaveText(/^Ready in .*\. 10 credits charged\.$/, { timeout: 40_000 });
});

test("offline for a while: it goes on, and is caught up with", async ({ page, context, backend, connect, watch }) => {
  watch.expects(/Failed to load resource/);
  await backend.lasts("mock-slow", 3_000);
  await connect();
  await generate(page, "Offline", "mock-slow");
  await expect(page.locator(".live")).toHaveText("Live");
  await context.setOffline(true);
  await expect(page.locator(".banner")).toHaveText("You are offline. Videos go on; your draft is kept.");
  await page.waitForTimeout(4_000);
  await context.setOffline(false);
  await expect(sentence(page)).toHaveText(/^Ready in/, { timeout: 20_000 });
});
