// A small server on a free port of loopback: the built page with the policy it ships with, and whatever API a test
// scripts. One per test, so that no test sees another's requests.
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { gzipSync } from "node:zlib";
import { POLICY } from "./policy";

const DIST = join(import.meta.dirname, "../../crates/api/console/dist");
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

export type Api = (request: IncomingMessage, response: ServerResponse, path: string) => Promise<void> | void;

export class Site {
  readonly url: string;

  private constructor(private readonly server: Server) {
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  static async start(api: Api): Promise<Site> {
    const server = createServer((request, response) => {
      const path = new URL(request.url ?? "/", "http://site").pathname;
      if (path === "/" || path.startsWith("/console/")) void serveFile(path, response);
      else void Promise.resolve(api(request, response, path)).catch(() => response.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Site(server);
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

async function serveFile(path: string, response: ServerResponse): Promise<void> {
  const name = path === "/" ? "index.html" : normalize(path.slice("/console/".length));
  try {
    if (name.startsWith("..")) throw new Error("outside");
    const body = await readFile(join(DIST, name));
    response.writeHead(200, {
      "Content-Type": TYPES[extname(name)] ?? "application/octet-stream",
      "Content-Encoding": "gzip",
      "Content-Security-Policy": POLICY,
      "X-Content-Type-Options": "nosniff",
      "Cache-Control": "no-cache",
    });
    response.end(gzipSync(body));
  } catch {
    response.writeHead(404).end();
  }
}
