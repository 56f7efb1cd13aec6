//! The names of metrics, in one place so that dashboards, alarms and code agree.
//!
//! Labels are bounded: tier, endpoint, model, provider account, rule. Never an id of a task, user or tenant.

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// Every name, so that dashboards can be compared with them.
        pub const ALL: &[&str] = &[$($text,)*];
    };
}

names! {
    /// Requests that every limit let through.
    RATE_LIMIT_ALLOWED = "rate_limit_allowed_total";
    /// Requests that a limit refused.
    RATE_LIMIT_REJECTED = "rate_limit_rejected_total";
    /// Requests that a limit in shadow mode would have refused, by scope and rule.
    RATE_LIMIT_SHADOW = "rate_limit_shadow_total";
    /// The waits that refused callers were told.
    RATE_LIMIT_RETRY_AFTER_MS = "rate_limit_retry_after_ms";
    /// Time of the limit script as its caller sees it.
    RATE_LIMIT_LUA_LATENCY_MS = "rate_limit_lua_latency_ms";
    /// Slots taken.
    SLOT_ACQUIRE_SUCCESS = "slot_acquire_success_total";
    /// Slots refused.
    SLOT_ACQUIRE_REJECTED = "slot_acquire_rejected_total";
    /// Slots given back.
    SLOT_RELEASE = "slot_release_total";
    /// Heartbeats that did not reach Redis or met another token.
    SLOT_HEARTBEAT_FAILED = "slot_heartbeat_failed_total";
    /// Leases found gone by the reaper.
    SLOT_LEASE_EXPIRED = "slot_lease_expired_total";
    /// Differences between Redis and PostgreSQL that a reconciler repaired.
    SLOT_RECONCILE_DIFF = "slot_reconcile_diff";
    /// Reads answered by a cache.
    CACHE_HIT = "cache_hit_total";
    /// Reads that a cache could not answer.
    CACHE_MISS = "cache_miss_total";
    /// Entries written to a cache.
    CACHE_SET = "cache_set_total";
    /// Messages published to streams.
    PUBSUB_PUBLISH = "pubsub_publish_total";
    /// Events pushed over SSE.
    SSE_PUSH = "sse_push_total";
    /// Event streams open in this process.
    SSE_STREAMS_OPEN = "sse_streams_open";
    /// Time from a request's head to its answer's, by endpoint, method and class of status.
    HTTP_REQUEST_DURATION_MS = "http_request_duration_ms";
    /// Requests that found a gate full, by gate.
    GATE_REFUSED = "gate_refused_total";
    /// Streams opened with a Last-Event-ID.
    CLIENT_RECONNECT = "client_reconnect_total";
    /// Snapshots that a stream read again from PostgreSQL.
    TASK_SNAPSHOT_REFETCH = "task_snapshot_refetch_total";
    /// From the request's arrival to its 202.
    ACCEPT_LATENCY_MS = "accept_latency_ms";
    /// From acceptance to the provider's acceptance.
    START_LATENCY_MS = "start_latency_ms";
    /// From acceptance to the end.
    FINISH_LATENCY_MS = "finish_latency_ms";
    /// How far outside the range that its reader was told a task started, by model; 0 inside.
    ETA_ERROR_MS = "eta_error_ms";
    /// Tasks whose readers were told when they would start, by model and outcome: sooner, within, later.
    ETA_PROMISES = "eta_promises_total";
    /// Age of the oldest outbox row.
    OUTBOX_AGE_MS = "outbox_age_ms";
    /// Tasks in the ready queue, by model.
    QUEUE_DEPTH = "queue_depth";
    /// How late polls are.
    POLL_LAG_MS = "poll_lag_ms";
    /// Rows of the ledger that do not add up, from the process that looked last; NaN where another one looks.
    LEDGER_DRIFT = "ledger_drift";
    /// Whether a store is taken for away (1) or not (0), by store.
    BREAKER_OPEN = "breaker_open";
    /// Calls to providers, by account, call and outcome.
    PROVIDER_CALLS = "provider_calls_total";
    /// How long they took, by account and call; of an output until its first byte can be read.
    PROVIDER_CALL_DURATION_MS = "provider_call_duration_ms";
    /// Whether submits to a provider account are only probes after failures in a row (1) or not (0), by account.
    PROVIDER_BREAKER_OPEN = "provider_breaker_open";
    /// Entries of a tenant's event stream when something was appended to it.
    STREAM_LENGTH = "stream_length";
    /// From a change's commit to its push to whoever listens.
    STREAM_LAG_MS = "stream_lag_ms";
    /// Seconds since a loop last came round, by loop.
    LOOP_IDLE_SECONDS = "loop_idle_seconds";
    /// Seconds since a pass of a loop last went well, by loop: what rises while a process is alive and does nothing.
    LOOP_SINCE_PROGRESS_SECONDS = "loop_since_progress_seconds";
    /// How much later than asked the event loop wakes whoever sleeps.
    EVENT_LOOP_LAG_MS = "event_loop_lag_ms";
    /// How hard the scheduler works, from 0 (its least) to 1.
    SCHEDULER_EFFORT = "scheduler_effort";
    /// Callbacks of providers, by account and what became of them.
    PROVIDER_CALLBACK = "provider_callback_total";
    /// Messages that went to the dead letters, by topic.
    DEAD_LETTER = "dead_letter_total";
}
