// Every refusal stands beside the button that caused it, in these words, with a way on; the draft stays.
import { problem } from "../support/fake";
import { expect, status, test } from "../support/test";
import type { Page } from "@playwright/test";

const generate = (page: Page) => page.locator("#generate");
const refusal = (page: Page) => page.locator(".refusal");

async function write(page: Page, prompt = "A red kite"): Promise<void> {
  await page.getByLabel("Prompt", { exact: true }).fill(prompt);
}

test("402 offers what the credits pay for", async ({ page, fake, open, watch }) => {
  watch.expects(status(402));
  fake.available = 70;
  fake.held = 30;
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(402, "insufficient_credits")), 1);
  await open();
  await page.getByLabel("mock-pro").check();
  await write(page);
  await generate(page).click();
  await expect(refusal(page)).toContainText("This video costs 100 credits; you have 70. 30 are held by running videos.");
  await expect(refusal(page)).toContainText("Ask your administrator for credits.");
  await expect(page.locator("#alert")).toContainText("This video costs 100 credits");
  await expect(generate(page)).toBeFocused();
  await refusal(page).getByRole("button", { name: "Use mock-slow (10)" }).or(refusal(page).getByRole("button", { name: "Use mock-fast (10)" })).waitFor();
  await refusal(page).getByRole("button", { name: "Shorten to 3 s (60)" }).click();
  await expect(page.getByLabel("Length")).toHaveValue("3");
  await expect(refusal(page)).toHaveText("");
  await generate(page).click();
  await expect(page.locator(".rows a.row").first()).toContainText("A red kite");
  expect(fake.asked("POST /generations").at(-1)?.body).toMatchObject({ model: "mock-pro", duration_seconds: 3 });
});

test("402 takes another model", async ({ page, fake, open, watch }) => {
  watch.expects(status(402));
  fake.available = 15;
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(402, "insufficient_credits", { required: 100, available: 12, held: 0 })), 1);
  await open();
  await page.getByLabel("mock-pro").check();
  await write(page);
  await generate(page).click();
  await expect(refusal(page)).toContainText("This video costs 100 credits; you have 12.");
  await refusal(page).getByRole("button", { name: /^Use mock-/ }).click();
  await expect(page.getByLabel("mock-pro")).not.toBeChecked();
  await expect(refusal(page).getByRole("button", { name: /Shorten/ })).toHaveCount(0);
});

const limits: [name: string, members: object, headers: Record<string, string>, text: string][] = [
  ["user rate", { scope: "user", policy: "user", limit: 5 }, { "RateLimit-Policy": '"user";q=5;w=60' }, "You can start 5 videos a minute. Next in 0:12."],
  ["tenant rate", { scope: "tenant", policy: "tenant", limit: 50 }, { "RateLimit-Policy": '"user";q=5;w=60, "tenant";q=50;w=60' }, "Your team can start 50 videos a minute. Next in 0:12."],
  ["address", { scope: "ip", limit: 20_000 }, {}, "Too many requests from this network. Next in 0:12."],
  ["strict", { scope: "model", policy: "expensive", limit: 3 }, { "RateLimit-Policy": '"expensive";q=3;w=600' }, "mock-fast allows 3 in 10 minutes. Next in 0:12."],
  ["unknown scope", { scope: "galaxy" }, {}, "Too many requests. Next in 0:12."],
];

for (const [name, members, headers, text] of limits) {
  test(`429 by ${name} counts to zero and never sends by itself`, async ({ page, fake, open, watch }) => {
    watch.expects(status(429));
    fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(429, "rate_limited", { retry_after_ms: 12_000, ...members }, { "Retry-After": "12", ...headers })), 1);
    await page.clock.install();
    await open();
    await write(page);
    await page.clock.pauseAt(Date.now() + 60_000);
    await generate(page).click();
    await expect(refusal(page)).toHaveText(text);
    await expect(generate(page)).toHaveText("Generate in 0:12");
    await expect(generate(page)).toBeFocused();
    const sent = fake.asked("POST /generations").length;
    await generate(page).click({ force: true });
    await page.clock.runFor(7_500);
    await expect(generate(page)).toHaveText("Generate in 0:05");
    await page.clock.runFor(5_000);
    await expect(generate(page)).toHaveText("Generate");
    await expect(refusal(page)).toHaveText("");
    await expect(page.locator("#status")).toHaveText("You can generate now.");
    expect(fake.asked("POST /generations")).toHaveLength(sent);
    await generate(page).click();
    await expect(page.locator(".rows a.row").first()).toContainText("A red kite");
  });
}

for (const [name, code, members, text] of [
  ["queue", "queue_full", { scope: "user", limit: 6 }, "6 of your videos are waiting, the most allowed."],
  ["team's queue", "queue_full", { scope: "tenant", limit: 60 }, "60 of your team's videos are waiting, the most allowed."],
  ["quota", "quota_exceeded", { scope: "user", limit: 10, reset: "2026-11-29T23:00:00Z", time_zone: "Europe/Berlin" }, "Today's 10 videos are used. More at 00:00 (Europe/Berlin)."],
] as const) {
  test(`429 of a full ${name}`, async ({ page, fake, open, watch }) => {
    watch.expects(status(429));
    fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(429, code, { retry_after_ms: 30_000, ...members }, { "Retry-After": "30" })));
    await open();
    await write(page);
    await generate(page).click();
    await expect(refusal(page)).toHaveText(text);
    await expect(generate(page)).toHaveText(/^Generate in 0:(30|29)$/);
  });
}

test("422 stands under its field, which takes the focus", async ({ page, fake, open, watch }) => {
  watch.expects(status(422));
  const errors = [
    { field: "seed", code: "out_of_range", message: "must be from 0 to 4294967295" },
    { field: "prompt", code: "too_long", message: "must have at most 4000 characters" },
  ];
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(422, "validation_failed", { errors })), 1);
  await open();
  await write(page);
  await generate(page).click();
  const prompt = page.getByLabel("Prompt", { exact: true });
  await expect(prompt).toBeFocused();
  await expect(prompt).toHaveAccessibleDescription("Must have at most 4000 characters.");
  await expect(page.getByLabel("Seed")).toBeVisible();
  await expect(page.getByLabel("Seed")).toHaveAccessibleDescription("Must be from 0 to 4294967295.");
  await expect(page.locator(".rows .row")).toHaveCount(0);
  await prompt.pressSequentially("!");
  await expect(prompt).not.toHaveAttribute("aria-invalid");
});

test("422 about something that the form does not have is still said", async ({ page, fake, open, watch }) => {
  watch.expects(status(422));
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(422, "validation_failed", { errors: [{ field: "tags", code: "unknown", message: "is not served" }] })));
  await open();
  await write(page);
  await generate(page).click();
  await expect(refusal(page)).toHaveText("tags: is not served");
});

test("an empty prompt is not sent", async ({ page, fake, open }) => {
  await open();
  await generate(page).click();
  await expect(page.getByLabel("Prompt", { exact: true })).toBeFocused();
  await expect(page.getByText("Write what the video should show.").last()).toBeVisible();
  expect(fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"))).toHaveLength(0);
});

test("503 tries three times by itself, then gives the button back", async ({ page, fake, open, watch }) => {
  watch.expects(status(503));
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(503, "unavailable", {}, { "Retry-After": "5" })), 4);
  await page.clock.install();
  await open();
  await write(page);
  await page.clock.pauseAt(Date.now() + 60_000);
  await generate(page).click();
  for (let n = 0; n < 3; n++) {
    await expect(refusal(page)).toHaveText("The service is busy. Nothing was charged. Trying again in 0:05.");
    await expect(generate(page)).toHaveText("Sending");
    const before = sends().length;
    await page.clock.runFor(5_100);
    await expect.poll(() => sends().length).toBe(before + 1);
  }
  await expect(refusal(page)).toContainText("The service is busy. Nothing was charged.");
  await expect(generate(page)).toHaveText("Generate");
  await generate(page).click();
  await expect(page.locator(".rows a.row").first()).toContainText("A red kite");
  expect(new Set(sends().map((seen) => seen.headers["idempotency-key"])).size).toBe(1);

  function sends() {
    return fake.asked("POST /generations").filter((seen) => !seen.query.has("dry_run"));
  }
});

test("403 names the scope; an unknown code shows its title and the request id", async ({ page, fake, open, watch }) => {
  watch.expects(status(403), status(418));
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(418, "teapot", { title: "Short and stout", request_id: "req-abcdef" })), 1);
  await open();
  await write(page);
  await generate(page).click();
  await expect(refusal(page)).toContainText("Short and stout.");
  await expect(refusal(page)).toContainText("Request req-abcdef");
  fake.on("POST /generations", (seen) => (seen.query.has("dry_run") ? undefined : problem(403, "forbidden", { scope: "write" })), 1);
  await generate(page).click();
  await expect(refusal(page)).toHaveText("This key may not create videos (needs write).");
  await expect(page.getByLabel("Prompt", { exact: true })).toHaveValue("A red kite");
});

test("a read-only session has no Generate", async ({ page, fake, open }) => {
  fake.scopes = ["read"];
  await open();
  await expect(page.getByText("This key may not create videos (needs write).")).toBeVisible();
  await expect(generate(page)).toHaveCount(0);
});

test.describe("connect", () => {
  test.beforeEach(({ fake, watch }) => {
    fake.demo = false;
    watch.expects(status(404));
  });

  test("a good key is swapped for a token and kept nowhere", async ({ page, fake, open }) => {
    await open();
    await expect(page.getByText("Paste an API key. It is swapped for a 15-minute token and not stored.")).toBeVisible();
    await expect(page.getByLabel("API key")).toBeFocused();
    await page.getByLabel("API key").fill("avk_secret");
    await page.keyboard.press("Enter");
    await expect(page.getByRole("heading", { name: "New video" })).toBeVisible();
    expect(fake.asked("POST /browser-tokens")[0]?.headers.authorization).toBe("Bearer avk_secret");
    expect(fake.asked("POST /browser-tokens")[0]?.body).toEqual({ ttl_seconds: 900, scopes: ["read", "write"] });
    expect(fake.asked("GET /me")[0]?.headers.authorization).toBe("Bearer avt_1");
    const stored = await page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }, document.cookie]));
    expect(stored).not.toContain("avk_secret");
    expect(stored).toContain("avt_1");
  });

  test("a wrong key, a key without the scope, too many of them", async ({ page, fake, open, watch }) => {
    watch.expects(status(401), status(403), status(429));
    await open();
    const connect = page.getByRole("button", { name: "Connect" });
    await page.getByLabel("API key").fill("avk_wrong");
    fake.on("POST /browser-tokens", problem(401, "unauthenticated"), 1);
    await connect.click();
    await expect(page.locator("#key-error")).toHaveText("This key was not accepted. Keys start with avk_; is all of it there?");
    await expect(page.getByLabel("API key")).toBeFocused();
    fake.on("POST /browser-tokens", problem(403, "forbidden", { detail: "This key lacks the scope tenant:write." }), 1);
    await connect.click();
    await expect(page.locator("#key-error")).toHaveText("This key may not create videos (needs tenant:write).");
    fake.on("POST /browser-tokens", problem(429, "rate_limited", { scope: "ip", policy: "failed_auth", retry_after_ms: 42_000 }), 1);
    await connect.click();
    await expect(page.locator("#key-error")).toHaveText(/^Too many wrong keys\. Next try in 0:4[12]\.$/);
    const asked = fake.asked("POST /browser-tokens").length;
    await connect.click({ force: true });
    expect(fake.asked("POST /browser-tokens")).toHaveLength(asked);
  });
});
