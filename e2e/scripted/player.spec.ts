// The player and what can be done with a video.
import { expect, status, test } from "../support/test";
import type { Fake } from "../support/fake";
import { problem } from "../support/fake";

function ready(fake: Fake): string {
  const { task_id } = fake.add();
  fake.succeed(task_id);
  return task_id;
}

test("the link is copied whole and says how long it works; curl never holds the token", async ({ page, context, fake, open }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const id = ready(fake);
  const exp = Date.UTC(2030, 0, 1, 15) / 1_000;
  fake.set(id, { output_url: `/assets/asset_1/content?exp=${exp}&sig=abc`, inputs: { ...fake.tasks.get(id)!.inputs, prompt: "It's a boat" } });
  await open(`/#/t/${id}`);
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await page.getByRole("button", { name: "Copy link" }).click();
  await expect(page.getByText("Copied. Works until 15:00.").last()).toBeVisible();
  expect(await clipboard()).toBe(`${fake.url}/assets/asset_1/content?exp=${exp}&sig=abc`);
  await page.getByRole("button", { name: "Copy curl" }).click();
  await expect.poll(clipboard).toBe(
    [
      `curl -X POST ${fake.url}/generations`,
      `-H "Authorization: Bearer $AIVIDEO_KEY"`,
      `-H 'Content-Type: application/json'`,
      `-d '{"model":"mock-fast","prompt":"It'\\''s a boat","duration_seconds":5,"resolution":"720p","aspect_ratio":"16:9"}'`,
    ].join(" \\\n  "),
  );
  await page.getByRole("button", { name: "Copy task id" }).click();
  await expect.poll(clipboard).toBe(id);
  await expect(page.locator(".id .said")).toHaveText("Copied");
  await expect(page.getByRole("link", { name: "Download" })).toHaveAttribute("download", `${id}.mp4`);
});

test("a public address before the link does not keep the page from playing it", async ({ page, fake, open }) => {
  const id = ready(fake);
  fake.set(id, { output_url: "https://videos.example.com/assets/asset_1/content?exp=4070908800&sig=abc" });
  await open(`/#/t/${id}`);
  await expect(page.locator(".player video")).toHaveAttribute("src", "/assets/asset_1/content?exp=4070908800&sig=abc");
  await expect.poll(() => page.locator(".player video").evaluate((element: HTMLVideoElement) => element.readyState)).toBeGreaterThan(0);
});

test("an expired link is exchanged once; a video that can't be played can still be had", async ({ page, fake, open, watch }) => {
  watch.expects(status(403), status(404));
  const id = ready(fake);
  fake.set(id, { output_url: "/assets/old/content?exp=4070908800&sig=abc" });
  fake.on("GET /assets/old/content", problem(403, "link_expired"));
  await open(`/#/t/${id}`);
  // Until the next answer brings another link, the one there is is refused.
  await expect(page.getByText("This browser can't play the file.")).toBeVisible();
  await expect(page.getByRole("link", { name: "Download it." })).toHaveAttribute("href", "/assets/old/content?exp=4070908800&sig=abc");
  fake.set(id, { output_url: "/assets/old/content?exp=4070908801&sig=abc" });
  let asked = 0;
  fake.on(`GET /tasks/${id}`, () => {
    asked += 1;
    const url = asked === 1 ? "/assets/old/content?exp=4070908800&sig=abc" : "/assets/new/content?exp=4070908801&sig=def";
    return { body: { ...fake.tasks.get(id)!, output_url: url } };
  });
  await page.reload();
  await expect(page.locator(".player video")).toHaveAttribute("src", "/assets/new/content?exp=4070908801&sig=def");
  await expect.poll(() => page.locator(".player video").evaluate((element: HTMLVideoElement) => element.readyState)).toBeGreaterThan(0);
});

test("a new signature alone never remounts a playing video", async ({ page, fake, open }) => {
  await page.clock.install();
  const id = ready(fake);
  const soon = Math.floor(Date.now() / 1_000) + 120;
  fake.set(id, { output_url: `/assets/asset_1/content?exp=${soon}&sig=abc` });
  await open(`/#/t/${id}`);
  const video = page.locator(".player video");
  await expect(video).toHaveAttribute("src", new RegExp(`exp=${soon}`));
  await video.evaluate((element) => Object.assign(element, { marked: true }));
  const later = soon + 3_600;
  fake.set(id, { output_url: `/assets/asset_1/content?exp=${later}&sig=def`, version: fake.tasks.get(id)!.version });
  await page.clock.runFor(70_000);
  await expect(page.getByRole("link", { name: "Download" })).toHaveAttribute("href", new RegExp(`exp=${later}`));
  expect(await video.evaluate((element: any) => element.marked && element.src.includes("sig=abc"))).toBe(true);
});
