// The shapes that the API answers with, as far as this page reads them. Enumerations may grow, so every status,
// stage, reason and code stays a string here, and whatever shows one has a neutral answer for a value it doesn't know.

/** Money in whole credits. `quoted` was fixed at submit; at the end `held` is 0 and the rest says what became of it. */
export interface TaskCredits {
  quoted: number;
  held: number;
  charged: number;
  released: number;
}

/** What the task was asked for. Null members were not given. */
export interface TaskInputs {
  prompt: string;
  negative_prompt?: string | null;
  duration_seconds: number;
  resolution?: string | null;
  aspect_ratio?: string | null;
  seed?: number | null;
}

/** A range of whole seconds. */
export interface Range {
  from_seconds: number;
  to_seconds: number;
}

/** Figures that go with a wait reason; each may be missing. */
export interface WaitDetail {
  used?: number | null;
  limit?: number | null;
  until?: string | null;
}

/** A snapshot: facts of one version, and what was computed while reading (null when unknown). */
export interface Task {
  task_id: string;
  status: string;
  stage: string;
  progress: number | null;
  queue_position: number | null;
  eta: Range | null;
  wait_reason: string | null;
  wait_detail: WaitDetail | null;
  provider?: string | null;
  model: string;
  attempt_no: number;
  /** Attempts that the provider refused or failed. */
  tries?: number | null;
  output_asset_id: string | null;
  output_url: string | null;
  error_code: string | null;
  error_message: string | null;
  inputs: TaskInputs | null;
  credits: TaskCredits;
  deadline_at: string | null;
  version: number;
  poll_after_ms: number | null;
  created_at: string;
  ended_at?: string | null;
}

/** One row of a task's history, as the stream sends it. */
export interface TaskEvent {
  task_id: string;
  version: number;
  type: string;
  status: string;
  stage: string;
  attempt_no: number;
  at: string;
  /** Credits that this change held, charged or gave back; 0 when it moved none. */
  credits: number;
  error_code?: string | null;
}

/** Progress between two versions; it is ordered by (version, progress). */
export interface ProgressEvent {
  version: number;
  progress: number | null;
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}

/** What a submit is answered with. */
export interface Accepted {
  task_id: string;
  status: string;
  credits_held: number;
  poll_after_ms: number;
}

/** The body of a submit, as this page fills it. */
export interface GenerationRequest {
  model: string;
  prompt: string;
  negative_prompt?: string;
  duration_seconds: number;
  resolution?: string;
  aspect_ratio?: string;
  seed?: number;
}

/** What a dry run is answered with, also when the real submit would be refused. */
export interface Quote {
  credits: number;
  decision: string;
  problem: ProblemBody | null;
  eta: Range | null;
}

/** One model with its matrix, prices and usual duration. */
export interface Model {
  model: string;
  title: string;
  /** Whole seconds. */
  duration_seconds: { min: number; max: number };
  /** Credits a second, by resolution. */
  price_per_second: Record<string, number>;
  default_resolution: string;
  aspect_ratios: string[];
  negative_prompt: boolean;
  seed: boolean;
  usual_duration_ms: number;
}

/** An account's figures. */
export interface CreditBalance {
  account_id?: string;
  available: number;
  held: number;
}

/** Who the token speaks for. */
export interface Me {
  user_id: string;
  user_name: string;
  tenant_id: string;
  tenant_name: string;
  scopes: string[];
  tier: string;
  credits: CreditBalance;
}

/** A token for this page: at most 15 minutes. */
export interface BrowserToken {
  token: string;
  expires_at: string;
  user_id: string;
  scopes: string[];
}

/** RFC 9457, with the members that this platform adds. */
export interface ProblemBody {
  type: string;
  title: string;
  status: number;
  detail?: string | null;
  code: string;
  request_id?: string | null;
  retryable?: boolean;
  errors?: { field: string; code: string; message: string }[];
  scope?: string | null;
  policy?: string | null;
  limit?: number | null;
  reset?: number | string | null;
  retry_after_ms?: number | null;
  time_zone?: string | null;
  /** The figures of a 402. */
  required?: number | null;
  available?: number | null;
  held?: number | null;
}
