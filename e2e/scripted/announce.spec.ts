// What a screen reader hears of one video: stages, quarters and the end, at most twelve sentences.
import { expect, test } from "../support/test";

test("at most twelve announcements, the right ones", async ({ page, fake, open }) => {
  await page.addInitScript(() => {
    const heard: string[] = [];
    Object.assign(window, { heard });
    addEventListener("DOMContentLoaded", () => {
      for (const id of ["status", "alert"]) {
        const region = document.getElementById(id)!;
        new MutationObserver(() => region.textContent && heard.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true });
      }
    });
  });
  const heard = (): Promise<string[]> => page.evaluate(() => (window as any).heard);
  const last = async (): Promise<string | undefined> => (await heard()).at(-1);
  await open();
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await page.locator("#generate").click();
  await expect.poll(last).toBe("Accepted.");
  await expect(page.locator(".live")).toHaveText("Live");
  const id = [...fake.tasks.keys()][0]!;
  fake.move(id, "scheduled", { status: "SCHEDULING", stage: "dispatching", attempt_no: 1 });
  await expect.poll(last).toBe("Sending to the provider.");
  fake.move(id, "submitted", { status: "PROVIDER_SUBMITTED", stage: "provider_queued" });
  await expect.poll(last).toBe("Accepted, waiting at the provider.");
  fake.move(id, "running", { status: "RUNNING", stage: "provider_generating" });
  await expect.poll(last).toMatch(/^Generating/);
  for (let progress = 1; progress < 100; progress += 2) fake.progress(id, progress);
  await expect.poll(last).toBe("75%");
  fake.move(id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
  await expect.poll(last).toBe("Saving your video.");
  fake.succeed(id);
  await expect.poll(last).toMatch(/^Ready in .* 10 credits charged\.$/);
  expect((await heard()).length).toBeLessThanOrEqual(12);
});
