// Cancel in every stage, and when it is too late.
import { problem } from "../support/fake";
import { expect, status, test } from "../support/test";

const cancel = { name: "Cancel", exact: true };

test("in line it ends at once", async ({ page, fake, open }) => {
  const task = fake.add();
  await open(`/#/t/${task.task_id}`);
  await page.getByRole("button", cancel).click();
  await expect(page.locator(".status-text")).toHaveText("Canceled. 10 credits are back.");
  await expect(page.getByRole("button", cancel)).toHaveCount(0);
  await expect(page.getByRole("button", { name: "Run again" })).toBeVisible();
});

for (const [state, stage] of [
  ["SCHEDULING", "dispatching"],
  ["PROVIDER_SUBMITTED", "provider_queued"],
  ["RUNNING", "provider_generating"],
] as const) {
  test(`${stage} asks first, then cancels`, async ({ page, fake, open }) => {
    const task = fake.add();
    fake.move(task.task_id, "scheduled", { status: state, stage, attempt_no: 1 });
    await open(`/#/t/${task.task_id}`);
    await page.getByRole("button", cancel).click();
    await expect(page.getByText("Cancel? Credits return.")).toBeVisible();
    await expect(page.getByRole("button", { name: "Cancel video" })).toBeFocused();
    // Esc closes the question; it never cancels.
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", cancel)).toBeFocused();
    expect(fake.asked(`POST /tasks/${task.task_id}/cancel`)).toHaveLength(0);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Cancel video" }).click();
    await expect(page.locator(".status-text")).toHaveText("Canceling, up to 10 s.");
    await expect(page.getByRole("button", cancel)).toHaveCount(0);
    fake.cancel(task.task_id);
    await expect(page.locator(".status-text")).toHaveText("Canceled. 10 credits are back.");
  });
}

test("a doubtful job can be canceled and keeps its stage until the doubt is resolved", async ({ page, fake, open }) => {
  const task = fake.add();
  fake.move(task.task_id, "reconciling", { status: "RECONCILING", stage: "reconciling", attempt_no: 1 });
  fake.on(`POST /tasks/${task.task_id}/cancel`, { status: 202, body: task });
  await open(`/#/t/${task.task_id}`);
  await page.getByRole("button", cancel).click();
  await page.getByRole("button", { name: "Cancel video" }).click();
  await expect(page.locator(".status-text")).toContainText("We are checking and will not send it twice.");
});

test("too late says so beside the button and goes on", async ({ page, fake, open, watch }) => {
  watch.expects(status(409));
  const task = fake.add();
  fake.move(task.task_id, "running", { status: "RUNNING", stage: "provider_generating", attempt_no: 1 });
  fake.on(`POST /tasks/${task.task_id}/cancel`, () => {
    fake.move(task.task_id, "post_processing", { status: "POST_PROCESSING", stage: "fetching_output" });
    return problem(409, "too_late");
  });
  await open(`/#/t/${task.task_id}`);
  await page.getByRole("button", cancel).click();
  await page.getByRole("button", { name: "Cancel video" }).click();
  await expect(page.locator(".cancel")).toHaveText("Too late to cancel: it is being saved.");
  await expect(page.locator("#alert")).toHaveText("Too late to cancel: it is being saved.");
  await expect(page.locator(".status-text")).toHaveText("Saving your video.");
});

test("saving offers no cancel, and a viewer none at all", async ({ page, fake, open }) => {
  const saving = fake.add({ status: "POST_PROCESSING", stage: "fetching_output" });
  await open(`/#/t/${saving.task_id}`);
  await expect(page.locator(".status-text")).toHaveText("Saving your video.");
  await expect(page.getByRole("button", cancel)).toHaveCount(0);
});
