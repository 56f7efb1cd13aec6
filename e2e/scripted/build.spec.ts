// What is committed is what the sources build, and nothing in it points elsewhere.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "@playwright/test";

const CONSOLE = join(import.meta.dirname, "../../crates/api/console");
const DIST = join(CONSOLE, "dist");

test("building again gives the committed bytes", () => {
  test.skip(!existsSync(join(CONSOLE, "node_modules")), "run.sh installs the console's packages");
  const out = mkdtempSync(join(tmpdir(), "aivideo-console-"));
  try {
    execFileSync(process.execPath, [join(CONSOLE, "node_modules/vite/bin/vite.js"), "build", "--outDir", out, "--emptyOutDir", "--logLevel", "error"], { cwd: CONSOLE });
    expect(readdirSync(out).sort()).toEqual(readdirSync(DIST).sort());
    for (const name of readdirSync(out)) expect(readFileSync(join(out, name)).equals(readFileSync(join(DIST, name))), name).toBe(true);
  } finally {
    rmSync(out, { recursive: true });
  }
});

test("the sources are typed", () => {
  test.skip(!existsSync(join(CONSOLE, "node_modules")), "run.sh installs the console's packages");
  execFileSync(process.execPath, [join(CONSOLE, "node_modules/typescript/bin/tsc"), "--noEmit"], { cwd: CONSOLE, stdio: "pipe" });
});

test("so are these tests", () => {
  execFileSync(process.execPath, [join(import.meta.dirname, "../node_modules/typescript/bin/tsc"), "--noEmit"], { cwd: join(import.meta.dirname, ".."), stdio: "pipe" });
});

test("lock files name no host, the page no other origin and no scripted API", () => {
  for (const lock of [join(CONSOLE, "package-lock.json"), join(import.meta.dirname, "../package-lock.json")]) {
    expect(readFileSync(lock, "utf8")).not.toContain('"resolved": "http');
  }
  for (const name of readdirSync(DIST)) {
    const text = readFileSync(join(DIST, name), "utf8");
    const urls = [...text.matchAll(/https?:\/\/[\w.-]+/g)].map(([url]) => url);
    expect(urls.filter((url) => url !== "http://www.w3.org"), name).toEqual([]);
  }
});
