// The test object of the specs against a running demo. Every test begins with a calm provider and its own user.
import { test as base, expect, type Page } from "@playwright/test";
import { findDemo, type Demo } from "./demo";
import { Backend } from "./mock";
import { Watch } from "./test";

export { expect };

interface PerWorker {
  running: { demo: Demo };
}

interface PerTest {
  demo: Demo;
  backend: Backend;
  watch: Watch;
  /** Connects as a user of this test with so many credits; answers with the key. */
  connect: (credits?: number, tier?: string) => Promise<string>;
}

export const test = base.extend<PerTest, PerWorker>({
  running: [
    async ({}, use) => {
      const { demo, stop } = await findDemo();
      await use({ demo });
      await stop();
    },
    { scope: "worker", timeout: 180_000 },
  ],
  demo: async ({ running }, use) => use(running.demo),
  backend: async ({ demo }, use) => {
    const backend = new Backend(demo);
    await backend.calm();
    await use(backend);
    await backend.calm();
  },
  watch: [
    async ({ page, demo }, use) => {
      const watch = new Watch(page, new URL(demo.url).origin);
      await use(watch);
      watch.check();
    },
    { auto: true },
  ],
  connect: async ({ page, demo, backend }, use) => {
    await use(async (credits = 10_000, tier = "enterprise") => {
      const { key } = await backend.newcomer(credits, tier);
      await page.goto(demo.url);
      await page.locator("h1").first().waitFor();
      // A demo connects by itself; this test's own user comes instead.
      await page.getByRole("button", { name: "Menu" }).click();
      await page.getByRole("button", { name: "Disconnect" }).click();
      await page.getByLabel("API key").fill(key);
      await page.getByRole("button", { name: "Connect" }).click();
      await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
      return key;
    });
  },
});

/** Fills the form and presses Generate. */
export async function generate(page: Page, prompt: string, model = "mock-fast"): Promise<void> {
  await page.getByLabel(model).check();
  await page.getByLabel("Prompt", { exact: true }).fill(prompt);
  await page.locator("#generate").click();
}

/** The id of the task on the stage. */
export const shownTask = (page: Page): Promise<string> => page.locator(".stage-about code").getAttribute("title").then((id) => id ?? "");

export const sentence = (page: Page) => page.locator(".status-text");
