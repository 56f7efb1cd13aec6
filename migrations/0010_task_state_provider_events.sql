-- task-state: the inbox of provider callbacks.
--
-- A callback never moves a task. It is stored here, answered after the commit, and its attempt's owner is told; the
-- owner asks the provider and moves the task by what it saw itself. What the table guarantees is that a delivery
-- counts once, however often and in whatever order it comes.

CREATE TABLE provider_events (
    provider_account_id text NOT NULL,
    -- The provider's name of the delivery: the same for every repetition.
    delivery_id text NOT NULL,
    -- Whose it is, by the address to which it was sent.
    task_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    -- The provider's word for what happened, and whether it means that the job has ended.
    kind text NOT NULL,
    says_ended boolean NOT NULL,
    -- The handle of the job that it speaks of. Only what the provider has signed names one: an attempt whose submit was
    -- never answered may find its job here.
    job text,
    -- The body as it came, or its beginning, and how long the whole was.
    body bytea NOT NULL CONSTRAINT provider_events_body_bounded CHECK (length(body) <= 65536),
    body_bytes integer NOT NULL,
    received_at timestamptz NOT NULL,
    -- pending: its owner is to be told. told: the owner was told and has looked. ignored: nobody had to look.
    outcome text NOT NULL CONSTRAINT provider_events_outcome_known CHECK (outcome IN ('pending', 'told', 'ignored')),
    -- Why it was ignored.
    reason text,
    PRIMARY KEY (provider_account_id, delivery_id),
    CONSTRAINT provider_events_reason_iff_ignored CHECK ((outcome = 'ignored') = (reason IS NOT NULL))
);
-- What owners are to be told, oldest first. A row changes once, when it leaves this index.
CREATE INDEX provider_events_pending ON provider_events (received_at) WHERE outcome = 'pending';
-- The job of an attempt whose submit was never answered.
CREATE INDEX provider_events_of_attempt ON provider_events (task_id, attempt_no);
CREATE INDEX provider_events_age ON provider_events (received_at);
