// Size, weight, stillness: no sideways scroll from 320 px on, targets of 44 px by touch, budgets, nothing that jumps.
import { expect, status, test } from "../support/test";
import { SCENES, show } from "../support/scenes";

for (const scene of SCENES) {
  test(`no sideways scroll: ${scene.name}`, async ({ page, fake, watch }) => {
    watch.expects(status(404));
    if (scene.refuses) watch.expects(status(scene.refuses));
    await page.setViewportSize({ width: 1280, height: 844 });
    await show(page, fake, scene);
    for (const width of [320, 360, 390, 480, 600, 768, 899, 900, 1024, 1280, 1920]) {
      await page.setViewportSize({ width, height: 844 });
      const overflow = (): Promise<string | null> => page.evaluate(() => {
        const limit = document.documentElement.clientWidth;
        const wide = [...document.body.querySelectorAll<HTMLElement>("*")].filter(
          (element) => element.checkVisibility() && !element.closest(".unseen, .skip") && element.getBoundingClientRect().right > limit + 1,
        );
        const scrolls = document.documentElement.scrollWidth > limit;
        return scrolls ? (wide[0]?.outerHTML.slice(0, 160) ?? "something") : null;
      });
      await expect.poll(overflow, `at ${width} px`).toBeNull();
    }
  });

  test(`touch targets: ${scene.name}`, async ({ page, fake, watch }) => {
    watch.expects(status(404));
    if (scene.refuses) watch.expects(status(scene.refuses));
    await page.setViewportSize({ width: 390, height: 844 });
    await show(page, fake, scene);
    const small = await page.evaluate(() =>
      [...document.querySelectorAll<HTMLElement>("a, button, select, input, textarea, summary")]
        .filter((element) => element.checkVisibility() && !element.matches(".skip, p a, p button, .player *"))
        .map((element) => ({ height: element.getBoundingClientRect().height, html: element.outerHTML.slice(0, 100) }))
        .filter(({ height }) => height < 43.5),
    );
    expect(small).toEqual([]);
  });
}

test("Create loads within its budgets", async ({ page, fake, open }) => {
  const sizes: Record<string, number> = {};
  page.on("response", async (response) => {
    const path = new URL(response.url()).pathname;
    if (path !== "/" && !path.startsWith("/console/")) return;
    const { responseBodySize } = await response.request().sizes();
    sizes[path] = responseBodySize;
  });
  fake.succeed(fake.add().task_id);
  await open();
  await page.waitForLoadState("networkidle", { timeout: 2_000 }).catch(() => undefined);
  const sum = (ending: string): number => Object.entries(sizes).filter(([path]) => path.endsWith(ending)).reduce((total, [, size]) => total + size, 0);
  expect(Object.keys(sizes).length).toBeLessThanOrEqual(6);
  expect(sum(".js")).toBeGreaterThan(10_000);
  expect(sum(".js")).toBeLessThanOrEqual(40 * 1_024);
  expect(sum(".css")).toBeLessThanOrEqual(8 * 1_024);
});

for (const [name, network, limitMs] of [
  ["locally", null, 500],
  ["at 1.6 Mbit/s and 150 ms", { offline: false, latency: 150, downloadThroughput: 200_000, uploadThroughput: 93_750 }, 1_500],
] as const) {
  test(`first paint ${name}, and nothing jumps`, async ({ page, context, fake, watch }) => {
    watch.expects(status(404));
    await page.addInitScript(() => {
      Object.assign(window, { shift: 0 });
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries() as any[]) if (!entry.hadRecentInput) (window as any).shift += entry.value;
      }).observe({ type: "layout-shift", buffered: true });
    });
    const scene = SCENES.find((candidate) => candidate.name === "create")!;
    const path = scene.prepare(fake);
    // Chromium's own start is not the page's.
    await page.goto(`${fake.url}/console/favicon.svg`);
    if (network) {
      const session = await context.newCDPSession(page);
      await session.send("Network.enable");
      await session.send("Network.emulateNetworkConditions", network);
    }
    await page.goto(fake.url + path);
    await page.locator("a.row").first().waitFor();
    await page.waitForTimeout(1_500);
    const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity);
    // Two cores are shared with whatever else runs here; the budget is the page's, so it is asked of its best run.
    expect(paint).toBeLessThan(limitMs * (process.env.CI ? 3 : 1.5));
    expect(await page.evaluate(() => (window as any).shift)).toBeLessThanOrEqual(0.02);
  });
}
