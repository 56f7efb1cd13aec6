// Everything without a mouse.
import { expect, test } from "../support/test";

test("from the first Tab to the playing video", async ({ page, fake, open }) => {
  await open();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "New video" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(page.getByLabel("Prompt", { exact: true })).toBeFocused();
  await page.keyboard.type("A lighthouse");
  await page.keyboard.press("Tab");
  await expect(page.getByLabel("mock-fast")).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page.getByLabel("mock-pro")).toBeChecked();
  await page.keyboard.press("ArrowUp");
  for (const label of ["Length", "Resolution", "Aspect"]) {
    await page.keyboard.press("Tab");
    await expect(page.getByLabel(label)).toBeFocused();
  }
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await expect(page.locator("#generate")).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  await expect(page.locator("#generate")).toBeFocused();
  fake.succeed([...fake.tasks.keys()][0]!);
  await expect(page.locator(".status-text")).toHaveText(/^Ready/);
  await expect(page.locator("#generate")).toBeFocused();
  await page.locator("a.row").focus();
  await page.keyboard.press("Enter");
  const heading = page.getByRole("heading", { name: "A lighthouse" });
  await expect(heading).toBeFocused();
  await page.getByRole("link", { name: "Download" }).focus();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: "Copy link" })).toBeFocused();
});

test("j and k walk the list, and mean letters anywhere else", async ({ page, fake, open }) => {
  for (let n = 0; n < 3; n++) fake.succeed(fake.add().task_id);
  await open("/#/tasks");
  const rows = page.locator("a.row");
  await rows.first().focus();
  await page.keyboard.press("j");
  await expect(rows.nth(1)).toBeFocused();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await expect(rows.nth(2)).toBeFocused();
  await page.keyboard.press("k");
  await expect(rows.nth(1)).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/#\/t\//);
  await page.goto(page.url().replace(/#.*/, "#/"));
  const prompt = page.getByLabel("Prompt", { exact: true });
  await prompt.focus();
  await page.keyboard.type("jk");
  await expect(prompt).toHaveValue("jk");
});

test("Control+Enter sends from the prompt; Escape closes the menu and gives the focus back", async ({ page, fake, open }) => {
  await open();
  await page.getByLabel("Prompt", { exact: true }).fill("A lighthouse");
  await page.keyboard.press("Control+Enter");
  await expect(page.locator(".rows a.row")).toHaveCount(1);
  await expect(page.getByLabel("Prompt", { exact: true })).toBeFocused();
  const menu = page.getByRole("button", { name: "Menu" });
  await menu.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Disconnect" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Disconnect" })).toBeHidden();
  await expect(menu).toBeFocused();
  expect(fake.asked(`POST /tasks/${[...fake.tasks.keys()][0]}/cancel`)).toHaveLength(0);
});

test("every control shows a ring of 2 px when it has the keyboard's focus", async ({ page, fake, open }) => {
  fake.succeed(fake.add().task_id);
  await open();
  await page.locator("a.row").waitFor();
  for (let n = 0; n < 22; n++) {
    await page.keyboard.press("Tab");
    const ring = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body || element.tagName === "VIDEO") return "none needed";
      const shown = element.matches("input[type=radio]") ? element.parentElement! : element;
      const style = getComputedStyle(shown);
      return style.outlineStyle === "none" ? `no ring: ${element.outerHTML.slice(0, 80)}` : style.outlineWidth;
    });
    expect(["2px", "none needed"]).toContain(ring);
  }
});
