// Pictures of the pages, to be looked at: results/<scene>-<width>-<theme>.png.
import { status, test } from "../support/test";
import { SCENES, show } from "../support/scenes";

for (const scene of SCENES) {
  test(`pictures of ${scene.name}`, async ({ page, fake, watch }) => {
    watch.expects(status(404));
    if (scene.refuses) watch.expects(status(scene.refuses));
    await page.emulateMedia({ reducedMotion: "reduce" });
    let first = true;
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: width === 1280 ? 900 : 844 });
      if (first) await show(page, fake, scene);
      first = false;
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        await page.screenshot({ path: `results/${scene.name}-${width}-${colorScheme}.png`, fullPage: width === 390 });
      }
    }
  });
}
