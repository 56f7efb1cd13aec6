// The task list: filters, pages, pictures, and the way back.
import { expect, test } from "../support/test";

test("filters live in the address, pages follow each other, Back restores place and filter", async ({ page, fake, open }) => {
  for (let n = 0; n < 70; n++) {
    const { task_id } = fake.add();
    if (n % 2 === 0) fake.succeed(task_id);
    else fake.fail(task_id, "provider_internal");
  }
  await open("/#/tasks");
  const rows = page.locator("a.row");
  await expect(rows).toHaveCount(30);
  await page.getByRole("button", { name: "Show more" }).click();
  await expect(rows).toHaveCount(60);
  await page.getByRole("button", { name: "Show more" }).click();
  await expect(rows).toHaveCount(70);
  await expect(page.getByRole("button", { name: "Show more" })).toHaveCount(0);
  await page.getByRole("link", { name: "Failed", exact: true }).click();
  await expect(page).toHaveURL(/#\/tasks\?status=FAILED$/);
  await expect(rows).toHaveCount(30);
  await expect(page.getByRole("link", { name: "Failed", exact: true })).toHaveAttribute("aria-current", "true");
  await page.getByRole("button", { name: "Show more" }).click();
  await expect(rows).toHaveCount(35);
  await rows.nth(30).scrollIntoViewIfNeeded();
  const before = await page.evaluate(() => scrollY);
  expect(before).toBeGreaterThan(500);
  await rows.nth(30).click();
  await expect(page.getByRole("heading", { name: "Paper boat in the rain" })).toBeFocused();
  expect(await page.evaluate(() => scrollY)).toBe(0);
  await page.goBack();
  await expect(rows).toHaveCount(35);
  await expect.poll(() => page.evaluate(() => scrollY)).toBe(before);
});

test("pictures for eight at most, and full times in titles", async ({ page, fake, open }) => {
  for (let n = 0; n < 12; n++) fake.succeed(fake.add({ created_at: "2026-11-28T14:02:11.610Z" }).task_id);
  await open("/#/tasks");
  await expect(page.locator("a.row")).toHaveCount(12);
  await expect(page.locator("video.thumb")).toHaveCount(8);
  await expect(page.locator("a.row time").first()).toHaveAttribute("title", "28 Nov 2026 14:02:11.610");
});

test("nothing there yet, and a list that could not be read", async ({ page, fake, open, watch }) => {
  watch.expects(/503/);
  await open("/#/tasks");
  await expect(page.getByText("No videos yet. Write a prompt and press Generate.")).toBeVisible();
  fake.on("GET /tasks", { status: 503, body: {} }, 1);
  await page.getByRole("link", { name: "Ready", exact: true }).click();
  await expect(page.getByText("The list could not be read.")).toBeVisible();
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByText("No videos with this status.")).toBeVisible();
});

test("Running takes in everything between the queue and the end", async ({ page, fake, open }) => {
  for (const status of ["SCHEDULING", "RECONCILING", "PROVIDER_SUBMITTED", "RUNNING", "POST_PROCESSING", "QUEUED"]) {
    fake.add({ status, stage: status === "QUEUED" ? "queued" : "provider_generating" });
  }
  await open("/#/tasks");
  await expect(page.locator("a.row")).toHaveCount(6);
  await page.getByRole("link", { name: "Running", exact: true }).click();
  await expect(page.locator("a.row")).toHaveCount(5);
});

test("the examples of an empty page fill the prompt", async ({ page, open }) => {
  await open();
  await expect(page.getByText("No videos yet. Write a prompt and press Generate.")).toBeVisible();
  await page.locator(".example").nth(1).click();
  await expect(page.getByLabel("Prompt", { exact: true })).toBeFocused();
  await expect(page.getByLabel("Prompt", { exact: true })).not.toHaveValue("");
});
