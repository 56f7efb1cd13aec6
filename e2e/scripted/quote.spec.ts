// The price: at once from the list, then once from a dry run; never asked for a prompt's sake, nor when requests run out.
import { problem } from "../support/fake";
import { expect, test } from "../support/test";

const dry = (fake: import("../support/fake").Fake) => fake.asked("POST /generations").filter((seen) => seen.query.get("dry_run") === "true");

test("price at once, one dry run for each change, none for the prompt", async ({ page, fake, open }) => {
  await open();
  await expect(page.locator(".price-figure")).toHaveText("10 credits");
  await expect(page.locator(".price-sum")).toHaveText("5 s x 2. Leaves 1,230.");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  expect(dry(fake)).toHaveLength(1);
  await page.getByLabel("Prompt", { exact: true }).pressSequentially("a boat in the rain");
  await page.getByLabel("Length").selectOption("3");
  await page.getByLabel("Length").selectOption("4");
  await page.getByLabel("mock-pro").check();
  await expect(page.locator(".price-figure")).toHaveText("80 credits");
  await expect(page.locator(".price-wait")).toHaveText("Checking wait");
  await expect(page.locator(".price-wait")).toHaveText("Starts at once.");
  expect(dry(fake)).toHaveLength(2);
  expect(dry(fake)[1]?.body).toMatchObject({ model: "mock-pro", duration_seconds: 4, resolution: "720p" });
  expect(dry(fake)[1]?.headers["idempotency-key"]).toBeUndefined();
});

for (const [name, quote, text] of [
  ["queues", { decision: "queues", eta: { from_seconds: 40, to_seconds: 70 } }, "Starts in about 40-70 s."],
  ["queues, long", { decision: "queues", eta: { from_seconds: 120, to_seconds: 200 } }, "Starts in about 2-3 min."],
  ["queues, nobody knows", { decision: "queues", eta: null }, "It will wait in line."],
  ["refused", { decision: "refused", problem: problem(402, "insufficient_credits").body, eta: null }, "Would be refused: not enough credits."],
  ["refused for something new", { decision: "refused", problem: problem(409, "odd", { title: "Wrong moon" }).body, eta: null }, "Would be refused: Wrong moon."],
  ["a new decision", { decision: "ponders", eta: null }, "(ponders)"],
] as const) {
  test(`a dry run that ${name}`, async ({ page, fake, open }) => {
    fake.on("POST /generations", { body: { credits: 10, problem: null, binding_limit: null, ...quote } });
    await open();
    await expect(page.locator(".price-wait")).toHaveText(text);
  });
}

test("with two requests left nothing is spent on asking", async ({ page, fake, open }) => {
  fake.headers = { RateLimit: '"user";r=9;t=1, "read";r=2;t=30' };
  await open();
  await expect.poll(() => dry(fake).length).toBe(1);
  await page.getByLabel("Length").selectOption("7");
  await expect(page.locator(".price-figure")).toHaveText("14 credits");
  await page.waitForTimeout(800);
  expect(dry(fake)).toHaveLength(1);
});
