// The running demo that the `real` tests use: one that somebody started (AIVIDEO_DEMO_JSON names a file with its JSON
// line), else one that is started from AIVIDEO_BIN in a folder of its own and stopped at the end.
import { spawn, type ChildProcess } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface Demo {
  url: string;
  api_key: string;
  admin_key: string;
  tenant_id: string;
  user_id: string;
  mock_provider_url: string;
}

const READY_MS = 120_000;
const STOP_MS = 30_000;

export const demoIsConfigured = (): boolean => Boolean(process.env.AIVIDEO_DEMO_JSON || process.env.AIVIDEO_BIN);

export interface RunningDemo {
  demo: Demo;
  stop: () => Promise<void>;
}

export async function findDemo(): Promise<RunningDemo> {
  const file = process.env.AIVIDEO_DEMO_JSON;
  if (file) return { demo: JSON.parse(readFileSync(file, "utf8")) as Demo, stop: () => Promise.resolve() };
  const binary = process.env.AIVIDEO_BIN;
  if (!binary) throw new Error("set AIVIDEO_DEMO_JSON or AIVIDEO_BIN");
  const folder = mkdtempSync(join(tmpdir(), "aivideo-e2e-"));
  // PostgreSQL runs as a user of its own, who has to get in.
  chmodSync(folder, 0o755);
  const child = spawn(binary, ["demo", "--json", "--http-addr", "127.0.0.1:0", "--data-dir", join(folder, "demo")], {
    stdio: ["ignore", "pipe", "pipe"],
    // The binary takes every AIVIDEO_ variable for configuration, and these two are ours.
    env: { ...process.env, AIVIDEO_BIN: undefined, AIVIDEO_DEMO_JSON: undefined },
  });
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-20_000)));
  const stop = async (): Promise<void> => {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    return { demo: await ready(child), stop };
  } catch (error) {
    await stop();
    throw new Error(`the demo did not become ready: ${String(error)}\n${log}`);
  }
}

/** The one JSON line on standard output. */
function ready(child: ChildProcess): Promise<Demo> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`nothing within ${READY_MS} ms`)), READY_MS);
    child.once("exit", (code) => reject(new Error(`it ended with ${code}`)));
    child.once("error", reject);
    createInterface({ input: child.stdout! }).on("line", (line) => {
      if (!line.startsWith("{")) return;
      clearTimeout(timer);
      resolve(JSON.parse(line) as Demo);
    });
  });
}

function end(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null) return resolve();
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    child.once("exit", () => {
      clearTimeout(timer);
      resolve();
    });
    child.kill("SIGTERM");
  });
}
