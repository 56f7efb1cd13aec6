// The test object of every spec: a scripted API, and a watch over the page that fails a test for what no user should
// meet: an error in the console, a violated policy, a request to another origin.
import { test as base, expect, type Page } from "@playwright/test";
import { Fake } from "./fake";

export { expect };

export class Watch {
  readonly errors: string[] = [];
  readonly foreign: string[] = [];
  /** Statuses that this test provokes: Chromium logs each as an error by itself. */
  private readonly expected: RegExp[] = [];

  constructor(page: Page, origin: string) {
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") this.errors.push(message.text());
    });
    page.on("pageerror", (error) => this.errors.push(String(error)));
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && !["blob:", "data:"].includes(url.protocol)) this.foreign.push(request.url());
    });
  }

  /** This test makes the network log such lines. */
  expects(...patterns: RegExp[]): void {
    this.expected.push(...patterns);
  }

  check(): void {
    expect(this.errors.filter((text) => !this.expected.some((pattern) => pattern.test(text)))).toEqual([]);
    expect(this.foreign).toEqual([]);
  }
}

export const test = base.extend<{ fake: Fake; watch: Watch; open: (path?: string) => Promise<void> }>({
  fake: async ({}, use) => {
    const fake = await Fake.start();
    await use(fake);
    await fake.stop();
  },
  watch: [
    async ({ page, fake }, use) => {
      const watch = new Watch(page, fake.url);
      await use(watch);
      watch.check();
    },
    { auto: true },
  ],
  open: async ({ page, fake }, use) => {
    await use(async (path = "/") => {
      await page.goto(fake.url + path);
      await page.locator("h1").first().waitFor();
    });
  },
});

/** What the page's network log says when a request is refused or cut on purpose. */
export const status = (code: number): RegExp => new RegExp(`Failed to load resource.*\\b${code}\\b`);
export const CUT = /Failed to load resource: net::ERR_/;
