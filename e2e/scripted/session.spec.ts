// The token: renewed while the key is in memory, asked for again when it isn't, and nothing is lost either way.
import { problem } from "../support/fake";
import { CUT, expect, status, test } from "../support/test";
import type { Page } from "@playwright/test";

async function connect(page: Page, key = "avk_good"): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
}

test("a demo needs no key", async ({ page, fake, open }) => {
  await open();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  expect(fake.asked("POST /demo-token")[0]?.headers.authorization).toBeUndefined();
  await page.reload();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  // The token of this tab is still good.
  expect(fake.asked("POST /demo-token")).toHaveLength(1);
});

test("at 80 % of its life the token is renewed with the key in memory", async ({ page, fake, open, watch }) => {
  watch.expects(status(404));
  fake.demo = false;
  await page.clock.install();
  await open();
  await connect(page);
  await page.clock.fastForward(725_000);
  await expect.poll(() => fake.asked("POST /browser-tokens").length).toBe(2);
  expect(fake.asked("POST /browser-tokens")[1]?.headers.authorization).toBe("Bearer avk_good");
});

test("a refused token is renewed and the request sent again", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401));
  fake.demo = false;
  await open();
  await connect(page);
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  fake.on("POST /generations", (seen) => (seen.headers.authorization === "Bearer avt_1" ? problem(401, "unauthenticated") : undefined));
  await page.locator("#generate").click();
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  expect(fake.tasks.size).toBe(1);
  expect(fake.asked("POST /generations").at(-1)?.headers.authorization).toBe("Bearer avt_2");
});

test("without the key the session ends, the draft stays, and pasting goes on where it stopped", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401));
  fake.demo = false;
  await open();
  await connect(page);
  await page.reload();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  await page.getByLabel("Prompt", { exact: true }).fill("Half a thought");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  fake.on("POST /generations", problem(401, "unauthenticated"), 1);
  await page.locator("#generate").click();
  await expect(page.getByText("Your session ended. Paste the key to go on; your draft is kept.").first()).toBeVisible();
  await expect(page.locator("#alert")).toHaveText("Your session ended. Paste the key to go on; your draft is kept.");
  expect(fake.tasks.size).toBe(0);
  await connect(page);
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("Half a thought");
});

test("the token's own end is noticed without a request", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401));
  fake.demo = false;
  await page.clock.install();
  await open();
  await connect(page);
  await page.reload();
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  await page.clock.fastForward(930_000);
  await expect(page.getByText("Your session ended. Paste the key to go on; your draft is kept.").first()).toBeVisible();
});

test("a busy server does not end the session", async ({ page, fake, open, watch }) => {
  watch.expects(status(503));
  await page.clock.install();
  await open();
  fake.on("POST /demo-token", problem(503, "unavailable"), 1);
  await page.clock.fastForward(725_000);
  await expect.poll(() => fake.asked("POST /demo-token").length).toBe(2);
  await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
  await page.clock.fastForward(31_000);
  await expect.poll(() => fake.asked("POST /demo-token").length).toBe(3);
});

test("Disconnect forgets the token", async ({ page, open }) => {
  await open();
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  await expect(page.getByRole("heading", { name: "Connect" })).toBeVisible();
  expect(await page.evaluate(() => sessionStorage.getItem("aivideo.session"))).toBeNull();
});

test("the next user at the same page sees nothing of the last one", async ({ page, fake, open, watch }) => {
  watch.expects(status(404));
  fake.demo = false;
  fake.succeed(fake.add().task_id);
  await open();
  await connect(page);
  await expect(page.locator("a.row")).toHaveCount(1);
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  fake.tasks.clear();
  fake.user = "user_2";
  let asked = 0;
  fake.on("GET /tasks", () => (asked++ === 0 ? { delayMs: 700, body: { items: [], next_cursor: null } } : undefined));
  await connect(page, "avk_other");
  await expect(page.locator("a.row")).toHaveCount(0, { timeout: 300 });
  await expect(page.getByText("No videos yet. Write a prompt and press Generate.")).toBeVisible();
});

test("a send that was never answered waits for its own user", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401), CUT);
  fake.demo = false;
  let down = true;
  fake.on("POST /generations", (seen) => {
    if (seen.query.has("dry_run") || !down) return undefined;
    (fake as any).accept(seen);
    return { cut: true };
  });
  await open();
  await connect(page);
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator(".refusal")).toContainText("Checking whether it arrived");
  fake.on("POST /generations", () => (down ? problem(401, "unauthenticated") : undefined));
  fake.on("POST /browser-tokens", problem(401, "unauthenticated"), 1);
  await expect(page.getByRole("heading", { name: "Connect" })).toBeVisible();
  down = false;
  fake.user = "user_2";
  await connect(page, "avk_other");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  const before = fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"));
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  expect(fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"))).toHaveLength(before.length);
  fake.user = "user_1";
  await connect(page);
  await expect(page.locator("a.row")).toHaveCount(1);
  await expect.poll(() => fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run")).length).toBe(before.length + 1);
  expect(fake.tasks.size).toBe(1);
});

test("a send that waits for its next try is not sent in the name of who connects meanwhile", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401), CUT);
  fake.demo = false;
  const sends = () => fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"));
  fake.on("POST /generations", (seen) => {
    if (seen.headers.authorization !== "Bearer avt_1") return undefined;
    if (!seen.query.has("dry_run")) return { cut: true };
    return sends().length > 0 ? problem(401, "unauthenticated") : undefined;
  });
  await open();
  await connect(page);
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await page.locator("#generate").click();
  await expect(page.locator(".refusal")).toContainText("Checking whether it arrived");
  // The session ends by another request while the send waits.
  fake.on("POST /browser-tokens", problem(401, "unauthenticated"), 1);
  await page.getByLabel("Length").selectOption("7");
  await expect(page.getByRole("heading", { name: "Connect" })).toBeVisible();
  fake.user = "user_2";
  await connect(page, "avk_other");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  // The wait is over, for the page says that the network is back.
  await page.evaluate(() => dispatchEvent(new Event("online")));
  await page.evaluate(() => fetch("/models").then(() => undefined));
  expect(sends().filter((seen) => seen.headers.authorization !== "Bearer avt_1")).toEqual([]);
  expect(fake.tasks.size).toBe(0);
});

test("a token that comes after its user has left changes nothing", async ({ page, fake, open, watch }) => {
  watch.expects(status(404), status(401));
  fake.demo = false;
  await open();
  await connect(page);
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  fake.on("GET /tasks", (seen) => (seen.headers.authorization === "Bearer avt_1" ? problem(401, "unauthenticated") : undefined));
  let late: (() => void) | undefined;
  const answered = new Promise<void>((resolve) => (late = resolve));
  fake.on("POST /browser-tokens", () => {
    setTimeout(() => late?.(), 900);
    return { status: 201, delayMs: 800, body: { token: "avt_late", expires_at: new Date(Date.now() + 900_000).toISOString(), user_id: "user_1", scopes: ["read", "write"] } };
  }, 1);
  await page.getByRole("link", { name: "Tasks" }).first().click();
  await expect.poll(() => fake.asked("POST /browser-tokens").length).toBe(2);
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("button", { name: "Disconnect" }).click();
  await answered;
  await page.evaluate(() => fetch("/models").then(() => undefined));
  await expect(page.getByRole("heading", { name: "Connect" })).toBeVisible();
  expect(fake.seen.filter((seen) => seen.headers.authorization === "Bearer avt_late")).toEqual([]);
});

test("the theme is chosen, kept, and applied before the first paint", async ({ page, open }) => {
  await page.emulateMedia({ colorScheme: "light" });
  await open();
  const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  expect(await background()).toBe("rgb(245, 246, 248)");
  await page.getByRole("button", { name: /^Theme: system/ }).click();
  await page.getByRole("button", { name: /^Theme: light/ }).click();
  expect(await background()).toBe("rgb(15, 18, 23)");
  await page.reload({ waitUntil: "commit" });
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  expect(await background()).toBe("rgb(15, 18, 23)");
  await page.getByRole("button", { name: /^Theme: dark/ }).click();
  expect(await background()).toBe("rgb(245, 246, 248)");
});
