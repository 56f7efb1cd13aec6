// Reduced motion: nothing spins, no bar moves, no video plays by itself.
import { expect, test } from "../support/test";

test("reduced motion is respected", async ({ page, fake, open }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  const { task_id } = fake.add({ model: "mock-slow" });
  fake.move(task_id, "running", { status: "RUNNING", stage: "provider_generating", attempt_no: 1 });
  await open(`/#/t/${task_id}`);
  await expect(page.locator(".moving")).toBeVisible();
  expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
  fake.succeed(task_id);
  const video = page.locator(".player video");
  await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.readyState)).toBeGreaterThan(0);
  expect(await video.evaluate((element: HTMLVideoElement) => element.autoplay || !element.paused)).toBe(false);
});

test("otherwise something moves while nobody knows how far it is", async ({ page, fake, open }) => {
  const { task_id } = fake.add({ model: "mock-slow" });
  fake.move(task_id, "running", { status: "RUNNING", stage: "provider_generating", attempt_no: 1 });
  await open(`/#/t/${task_id}`);
  await expect(page.locator(".moving")).toBeVisible();
  expect(await page.evaluate(() => document.getAnimations().length)).toBeGreaterThan(0);
});
