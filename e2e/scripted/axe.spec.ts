// axe finds nothing serious on any page in any state, at both widths, in both themes.
import { AxeBuilder } from "@axe-core/playwright";
import { expect, status, test } from "../support/test";
import { SCENES, show } from "../support/scenes";

for (const scene of SCENES) {
  for (const width of [1280, 390]) {
    test(`${scene.name} at ${width}, light and dark`, async ({ page, fake, watch }) => {
      watch.expects(status(404));
      if (scene.refuses) watch.expects(status(scene.refuses));
      await page.setViewportSize({ width, height: 844 });
      await page.emulateMedia({ reducedMotion: "reduce", colorScheme: "light" });
      await show(page, fake, scene);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        const { violations } = await new AxeBuilder({ page }).analyze();
        const serious = violations.filter((violation) => violation.impact === "serious" || violation.impact === "critical");
        expect(serious.map(({ id, nodes }) => ({ id, where: nodes.map((node) => `${node.html.slice(0, 140)} ${node.failureSummary}`) }))).toEqual([]);
      }
    });
  }
}
