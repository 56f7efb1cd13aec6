// The road as a user walks it: a prompt, a price, a place in line, progress, a video that plays, and its credits.
import { demoIsConfigured } from "../support/demo";
import { expect, generate, sentence, shownTask, test } from "../support/real";
import { POLICY } from "../support/policy";
import { status } from "../support/test";

test.skip(!demoIsConfigured(), "set AIVIDEO_BIN or AIVIDEO_DEMO_JSON");

test("demo, without a key, from the prompt to the played video", async ({ page, demo, backend }) => {
  await backend.stats();
  await page.goto(demo.url);
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  expect(await page.evaluate(() => document.createElement("video").canPlayType('video/mp4; codecs="avc1.42E01E"'))).toBe("probably");
  await expect(page.locator(".price-figure")).toHaveText("10 credits");
  await expect(page.locator(".price-wait")).toHaveText(/^Starts/);
  await generate(page, "A paper boat in the rain");
  await expect(sentence(page)).toHaveText(/^Ready in .*\. 10 credits charged\.$/, { timeout: 20_000 });
  const video = page.locator(".player video");
  await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.currentTime)).toBeGreaterThan(0);
  expect(await video.evaluate((element: HTMLVideoElement) => element.videoWidth)).toBeGreaterThan(0);
  const id = await shownTask(page);
  await page.getByRole("link", { name: "Open" }).click();
  await expect(page.getByRole("heading", { name: "A paper boat in the rain" })).toBeFocused();
  await expect(page.locator(".trail-line").first()).toHaveText("Accepted");
  await expect(page.locator(".trail-line").last()).toHaveText("Ready");
  await expect(page.locator(".facts")).toContainText("quoted 10, charged 10");
  await page.goto(`${demo.url}/#/tasks?status=SUCCEEDED`);
  await expect(page.locator(`a.row[href="#/t/${id}"]`)).toBeVisible();
});

test("the page and its files are served as agreed", async ({ page, demo }) => {
  const response = await page.goto(demo.url);
  expect(response?.headers()["content-security-policy"]?.split(/;\s*/).filter(Boolean).sort()).toEqual(POLICY.split("; ").sort());
  expect(response?.headers()["cache-control"]).toContain("no-cache");
  expect(response?.headers().etag).toBeTruthy();
  const files = await page.evaluate(() => [...document.querySelectorAll("script, link")].map((element) => element.getAttribute("src") ?? element.getAttribute("href")!));
  expect(files.length).toBeGreaterThanOrEqual(4);
  for (const file of files) {
    const answer = await page.request.get(demo.url + file, { headers: { "Accept-Encoding": "br, gzip" } });
    expect(answer.status(), file).toBe(200);
    expect(answer.headers()["x-content-type-options"], file).toBe("nosniff");
    if (/-[\w-]{8}\.(js|css)$/.test(file)) {
      expect(answer.headers()["cache-control"], file).toContain("immutable");
      expect(answer.headers()["content-encoding"], file).toMatch(/br|gzip/);
    } else {
      expect(answer.headers()["cache-control"] ?? "", file).not.toContain("immutable");
    }
  }
  expect((await page.request.get(`${demo.url}/console/nothing-here.js`)).status()).toBe(404);
});

test("loading the page again, unchanged, leaves it as it was", async ({ page, demo }) => {
  await page.goto(demo.url);
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  // The answer is a 304 now, whose headers replace those that the browser kept with the page.
  await page.goto(`${demo.url}/docs`);
  await page.goto(demo.url);
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
});

test("a wrong key is refused in words, a good one connects", async ({ page, demo, backend, watch }) => {
  watch.expects(status(401));
  const { key } = await backend.newcomer(100);
  await page.goto(demo.url);
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  await page.getByLabel("API key").fill(`${key.slice(0, -4)}0000`);
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.locator("#key-error")).toHaveText("This key was not accepted. Keys start with avk_; is all of it there?");
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.locator(".money")).toContainText("100 credits");
  await expect(page.getByText("No videos yet. Write a prompt and press Generate.")).toBeVisible();
});

test("progress is shown, credits are held, then charged", async ({ page, backend, connect }) => {
  await backend.lasts("mock-slow", 5_000);
  const key = await connect(100);
  await generate(page, "A slow lighthouse", "mock-slow");
  await expect(page.locator(".money")).toHaveText("90 credits10 held");
  await expect(page.locator(".live")).toHaveText("Live");
  await expect(page.getByRole("progressbar")).toHaveAttribute("aria-valuenow", /^\d+$/, { timeout: 15_000 });
  await expect(sentence(page)).toHaveText(/^Generating \d+%/);
  await expect(sentence(page)).toHaveText(/^Ready in .*\. 10 credits charged\.$/, { timeout: 30_000 });
  await expect(page.locator(".money")).toHaveText("90 credits");
  expect(await backend.credits(key)).toMatchObject({ available: 90, held: 0 });
});

test("402 offers what fits; the shortened video is accepted", async ({ page, connect, watch }) => {
  watch.expects(status(402));
  await connect(70);
  await page.getByLabel("mock-pro").check();
  await expect(page.locator(".price-wait")).toHaveText("Would be refused: not enough credits.");
  await generate(page, "Too dear", "mock-pro");
  await expect(page.locator(".refusal")).toContainText("This video costs 100 credits; you have 70.");
  await page.getByRole("button", { name: "Shorten to 3 s (60)" }).click();
  await page.locator("#generate").click();
  await expect(page.locator("a.row")).toHaveCount(1);
});

test("429 of a free user counts down", async ({ page, backend, connect, watch }) => {
  watch.expects(status(429));
  await backend.lasts("mock-slow", 20_000);
  await connect(1_000, "free");
  for (let n = 1; n <= 5; n++) {
    await generate(page, `Number ${n}`, "mock-slow");
    await expect(page.locator("a.row")).toHaveCount(n);
  }
  await generate(page, "Number 6", "mock-slow");
  await expect(page.locator(".refusal")).toHaveText(/^You can start 5 videos a minute\. Next in 0:\d\d\.$/);
  await expect(page.locator("#generate")).toHaveText(/^Generate in 0:\d\d$/);
  await expect(page.locator(".status-more")).toHaveText("1 of your 1 places are running. This starts when one ends.");
});

test("422 stands under its field", async ({ page, connect, watch }) => {
  watch.expects(status(422));
  await connect();
  await page.getByText("More").click();
  await page.getByLabel("Seed").fill("99999999999");
  await generate(page, "A seed too large");
  await expect(page.getByLabel("Seed")).toBeFocused();
  await expect(page.getByLabel("Seed")).toHaveAttribute("aria-invalid", "true");
});

test("somebody else's video looks like one that does not exist", async ({ page, demo, connect, watch }) => {
  watch.expects(status(404));
  await page.goto(demo.url);
  await generate(page, "Mine alone");
  await expect(page.locator(".stage-about code")).toBeVisible();
  const id = await shownTask(page);
  await connect();
  await page.goto(`${demo.url}/#/t/${id}`);
  await expect(page.getByText("This video does not exist, or it is not yours.")).toBeVisible();
});
