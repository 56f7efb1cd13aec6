// What is committed is what the sources build, and nothing in it points elsewhere.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { expect, test } from "@playwright/test";

const CONSOLE = join(import.meta.dirname, "../../crates/api/console");
const DIST = join(CONSOLE, "dist");

test("building again gives the committed bytes", () => {
  test.skip(!existsSync(join(CONSOLE, "node_modules")), "run.sh installs the console's packages");
  const out = mkdtempSync(join(tmpdir(), "aivideo-console-"));
  try {
    execFileSync(process.execPath, [join(CONSOLE, "node_modules/vite/bin/vite.js"), "build", "--outDir", out, "--emptyOutDir", "--logLevel", "error"], { cwd: CONSOLE });
    const committed = readdirSync(DIST);
    expect(readdirSync(out).sort()).toEqual(committed.filter((name) => !/\.(br|gz)$/.test(name)).sort());
    for (const name of readdirSync(out)) {
      const bytes = readFileSync(join(out, name));
      expect(bytes.equals(readFileSync(join(DIST, name))), name).toBe(true);
      // The compressed copies have to say the same; their own bytes depend on the compressor's version.
      if (!/\.(html|js|css)$/.test(name) || name === "theme.js") continue;
      expect(gunzipSync(readFileSync(join(DIST, `${name}.gz`))).equals(bytes), `${name}.gz`).toBe(true);
      expect(brotliDecompressSync(readFileSync(join(DIST, `${name}.br`))).equals(bytes), `${name}.br`).toBe(true);
    }
    expect(committed.length).toBe(readdirSync(out).length + 2 * readdirSync(out).filter((name) => /\.(html|js|css)$/.test(name) && name !== "theme.js").length);
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
  for (const name of readdirSync(DIST).filter((name) => !/\.(br|gz)$/.test(name))) {
    const text = readFileSync(join(DIST, name), "utf8");
    const urls = [...text.matchAll(/https?:\/\/[\w.-]+/g)].map(([url]) => url);
    expect(urls.filter((url) => url !== "http://www.w3.org"), name).toEqual([]);
  }
});
