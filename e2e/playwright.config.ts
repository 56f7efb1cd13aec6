// Two groups of tests drive Debian's Chromium. `scripted`: the built page against an API that a test scripts, for every
// exact text and every fault. `real`: the page that a running demo serves, from the prompt to the video that plays.
import { defineConfig } from "@playwright/test";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const asRoot = process.getuid?.() === 0;

export default defineConfig({
  testDir: ".",
  outputDir: "results/output",
  timeout: 30_000,
  expect: { timeout: 7_000 },
  fullyParallel: true,
  workers: Number(process.env.E2E_WORKERS ?? 2),
  forbidOnly: Boolean(process.env.CI),
  retries: 0,
  reporter: [["list"], ["./support/closing-line.ts"]],
  use: {
    browserName: "chromium",
    viewport: { width: 1280, height: 900 },
    timezoneId: "UTC",
    locale: "en-GB",
    serviceWorkers: "block",
    screenshot: "only-on-failure",
    launchOptions: {
      executablePath,
      args: [
        ...(asRoot ? ["--no-sandbox"] : []),
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-gpu",
      ],
    },
  },
  projects: [
    { name: "scripted", testMatch: "scripted/**/*.spec.ts" },
    // One demo for all: its tests set the provider's faults, so they go one after another.
    { name: "real", testMatch: "real/**/*.spec.ts", fullyParallel: false, workers: 1, timeout: 90_000 },
  ],
});
