-- task-state: the tasks. Only this owner moves them; see crates/domain/src/task/transition.rs for the rule.

-- Narrow and updated in place. No index names a column that a transition other than the last one changes, so every
-- other transition is a HOT update: it touches one page and no index.
CREATE TABLE generation_tasks (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    project_id uuid,
    -- The credit account that holds the price.
    account_id uuid NOT NULL,
    model text NOT NULL,
    price bigint NOT NULL CONSTRAINT generation_tasks_price_not_negative CHECK (price >= 0),
    priority smallint NOT NULL DEFAULT 0,

    status text NOT NULL CONSTRAINT generation_tasks_status_known CHECK (status IN ('QUEUED', 'SCHEDULING',
        'PROVIDER_SUBMITTED', 'RUNNING', 'POST_PROCESSING', 'SUCCEEDED', 'FAILED', 'CANCELED', 'RECONCILING')),
    -- Counts visible changes; every write names the version that it read or the token that it holds.
    version integer NOT NULL,
    -- Counts our references at the provider.
    attempt_no integer NOT NULL DEFAULT 0,
    -- Counts tries that the provider refused or failed.
    tries integer NOT NULL DEFAULT 0,
    -- The present owner: its name, and the token that its writes must carry.
    worker_id text,
    fencing_token bigint NOT NULL DEFAULT 0,
    provider_account_id text,
    -- The adapter's opaque handle of the job.
    provider_task_id text,

    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- The deadline given at submit: a lower bound of deadline_at, never changed, hence fit for an index.
    submit_deadline_at timestamptz NOT NULL,
    deadline_at timestamptz NOT NULL,
    not_before timestamptz,
    cancel_requested_at timestamptz,
    ended_at timestamptz,

    error_code text,
    error_message text,
    output_asset_id uuid,
    CONSTRAINT generation_tasks_ended_iff_terminal
        CHECK ((ended_at IS NOT NULL) = (status IN ('SUCCEEDED', 'FAILED', 'CANCELED')))
) WITH (fillfactor = 60);

-- Live tasks by deadline, for the sweeper and the reconcilers.
CREATE INDEX generation_tasks_live_by_deadline ON generation_tasks (submit_deadline_at) WHERE ended_at IS NULL;
-- Live tasks by owner and model, for the ready queue and for positions.
CREATE INDEX generation_tasks_live_by_owner ON generation_tasks (tenant_id, user_id, model, id) WHERE ended_at IS NULL;
-- Lists, newest first.
CREATE INDEX generation_tasks_of_user ON generation_tasks (user_id, id);
CREATE INDEX generation_tasks_of_tenant ON generation_tasks (tenant_id, id);
CREATE INDEX generation_tasks_of_project ON generation_tasks (project_id, id) WHERE project_id IS NOT NULL;

-- What was asked for. Written once, read when a snapshot is made or a job is submitted.
CREATE TABLE generation_inputs (
    task_id uuid PRIMARY KEY,
    prompt text NOT NULL,
    negative_prompt text,
    duration_seconds integer NOT NULL,
    resolution text NOT NULL,
    aspect_ratio text,
    seed bigint,
    tags text[] NOT NULL DEFAULT '{}',
    -- The W3C trace context of the request, for the call to the provider.
    traceparent text
);

-- Tokens only rise, whatever happens to Redis.
CREATE SEQUENCE fencing_tokens AS bigint CACHE 1;

-- One row per reference that we may have used at a provider, recorded before the provider is called. An attempt
-- may outlive its task.
CREATE TABLE task_attempts (
    task_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    provider_account_id text NOT NULL,
    -- The model's name at the provider.
    model text NOT NULL,
    worker_id text NOT NULL,
    fencing_token bigint NOT NULL,
    provider_task_id text,
    claimed_at timestamptz NOT NULL,
    submitted_at timestamptz,
    -- The last moment at which the submit could have been on its way; absence is proved only after it.
    submit_until timestamptz NOT NULL,
    -- The upstream cancel: when it was asked for, and what the provider said.
    cancel_sent_at timestamptz,
    -- The provider is through with it: it no longer counts against any limit.
    through_at timestamptz,
    -- Nobody has to own it any more.
    closed_at timestamptz,
    -- How it ended: refused, failed, canceled, absent, never_sent, lost, finished, gave_up.
    outcome text,
    failure_class text,
    -- The provider's own words, for operators only.
    provider_message text,
    -- Put before the operator's eyes.
    flagged_at timestamptz,
    PRIMARY KEY (task_id, attempt_no),
    CONSTRAINT task_attempts_through_before_closed CHECK (closed_at IS NULL OR through_at IS NOT NULL)
) WITH (fillfactor = 60);
-- Live attempts: counted by the claim, compared with the slots, watched by the reaper.
CREATE INDEX task_attempts_open ON task_attempts (provider_account_id, model) WHERE closed_at IS NULL;

-- History: one row per visible change. Streams replay it.
CREATE TABLE task_events (
    task_id uuid NOT NULL,
    version integer NOT NULL,
    type text NOT NULL,
    status text NOT NULL,
    stage text NOT NULL,
    attempt_no integer NOT NULL,
    at timestamptz NOT NULL,
    credits bigint NOT NULL DEFAULT 0,
    error_code text,
    PRIMARY KEY (task_id, version)
);
