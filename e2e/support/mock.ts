// The control API of the mock provider (faults, durations, figures), and the API as an administrator and a key use it.
import type { Demo } from "./demo";

export interface Fault {
  on: "submit" | "poll" | "lookup" | "output" | "callback" | "cancel";
  match?: { model?: string; prompt_contains?: string };
  action: { delay_ms?: number; status?: number; drop?: "before_accept" | "after_accept"; hang?: boolean; truncate_bytes?: number };
  times?: number;
}

export interface Stats {
  submits: number;
  submits_by_reference: Record<string, number>;
  max_live_by_task: number;
}

async function ask(url: string, method: string, body?: unknown, bearer?: string): Promise<any> {
  const response = await fetch(url, {
    method,
    headers: { ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...(bearer ? { Authorization: `Bearer ${bearer}` } : {}) },
    body: body === undefined ? null : JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${url} answered ${response.status}: ${text}`);
  return text ? JSON.parse(text) : null;
}

export class Backend {
  constructor(private readonly demo: Demo) {}

  faults(rules: Fault[]): Promise<void> {
    return ask(`${this.demo.mock_provider_url}/_control/faults`, "PUT", rules);
  }

  async calm(): Promise<void> {
    await ask(`${this.demo.mock_provider_url}/_control/faults`, "DELETE");
    await this.lasts("mock-fast", 1_000);
    await this.lasts("mock-slow", 60_000);
  }

  lasts(model: string, duration_ms: number, fail_rate = 0): Promise<void> {
    return ask(`${this.demo.mock_provider_url}/_control/models/${model}`, "PUT", { duration_ms, fail_rate });
  }

  stats(): Promise<Stats> {
    return ask(`${this.demo.mock_provider_url}/_control/stats`, "GET");
  }

  task(id: string): Promise<any> {
    return ask(`${this.demo.url}/tasks/${id}`, "GET", undefined, this.demo.admin_key);
  }

  async tasksOf(key: string): Promise<any[]> {
    return (await ask(`${this.demo.url}/tasks?limit=100`, "GET", undefined, key)).items;
  }

  /** A user with a key and so many credits, in a tenant of the given tier. */
  async newcomer(credits: number, tier = "enterprise"): Promise<{ key: string; user: string }> {
    const admin = this.demo.admin_key;
    const name = `e2e-${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    const tenant = await ask(`${this.demo.url}/admin/tenants`, "POST", { name, tier }, admin);
    const user = await ask(`${this.demo.url}/admin/users`, "POST", { tenant_id: tenant.id, name }, admin);
    const { api_key } = await ask(`${this.demo.url}/admin/keys`, "POST", { user_id: user.id }, admin);
    if (credits > 0) await ask(`${this.demo.url}/admin/grants`, "POST", { user_id: user.id, credits }, admin);
    return { key: api_key, user: user.id };
  }

  /** Credits of a key. */
  credits(key: string): Promise<{ available: number; held: number }> {
    return ask(`${this.demo.url}/credits`, "GET", undefined, key);
  }
}
