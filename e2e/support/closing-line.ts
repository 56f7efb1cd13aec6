// Prints the closing line that scripts read: `N passed, N failed`, with the skipped ones when there are any.
import type { Reporter, TestCase } from "@playwright/test/reporter";

export default class ClosingLine implements Reporter {
  private readonly last = new Map<string, "passed" | "failed" | "skipped">();

  onTestEnd(test: TestCase): void {
    const outcome = test.outcome();
    this.last.set(test.id, outcome === "skipped" ? "skipped" : outcome === "unexpected" ? "failed" : "passed");
  }

  onExit(): Promise<void> {
    const count = (wanted: string): number => [...this.last.values()].filter((outcome) => outcome === wanted).length;
    const skipped = count("skipped");
    console.log(`${count("passed")} passed, ${count("failed")} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
    return Promise.resolve();
  }

  printsToStdio(): boolean {
    return false;
  }
}
