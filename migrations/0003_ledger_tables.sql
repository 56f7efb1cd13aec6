-- ledger: where every credit is.
--
-- A credit of an account lies in exactly one of five buckets: available, held, captured, expired, withdrawn.
-- It enters by a grant and then only moves from bucket to bucket, always in the transaction of the task
-- transition, payment, operator action or expiry that is the reason.

CREATE TABLE credit_accounts (
    id uuid PRIMARY KEY,
    -- `user` or `tenant`, and whose it is.
    owner_kind text NOT NULL CONSTRAINT credit_accounts_owner_known CHECK (owner_kind IN ('user', 'tenant')),
    owner_id uuid NOT NULL,
    granted bigint NOT NULL DEFAULT 0,
    available bigint NOT NULL DEFAULT 0 CONSTRAINT credit_accounts_available_not_negative CHECK (available >= 0),
    held bigint NOT NULL DEFAULT 0 CONSTRAINT credit_accounts_held_not_negative CHECK (held >= 0),
    captured bigint NOT NULL DEFAULT 0 CONSTRAINT credit_accounts_captured_not_negative CHECK (captured >= 0),
    expired bigint NOT NULL DEFAULT 0 CONSTRAINT credit_accounts_expired_not_negative CHECK (expired >= 0),
    withdrawn bigint NOT NULL DEFAULT 0 CONSTRAINT credit_accounts_withdrawn_not_negative CHECK (withdrawn >= 0),
    CONSTRAINT credit_accounts_conserve CHECK (granted = available + held + captured + expired + withdrawn),
    CONSTRAINT credit_accounts_one_per_owner UNIQUE (owner_kind, owner_id)
) WITH (fillfactor = 50);

CREATE TABLE credit_grants (
    id uuid PRIMARY KEY,
    account_id uuid NOT NULL CONSTRAINT credit_grants_account_exists REFERENCES credit_accounts (id),
    -- Such as `purchase`, `bonus`, `demo`; for display.
    category text NOT NULL,
    -- Holds burn the lowest number first, then the earliest expiry.
    priority integer NOT NULL DEFAULT 100,
    expires_at timestamptz,
    -- The grant's unique reason, such as an operator's request; makes a repeated grant a no-op.
    source text NOT NULL CONSTRAINT credit_grants_source_unique UNIQUE,
    granted bigint NOT NULL CONSTRAINT credit_grants_granted_positive CHECK (granted > 0),
    available bigint NOT NULL CONSTRAINT credit_grants_available_not_negative CHECK (available >= 0),
    held bigint NOT NULL DEFAULT 0 CONSTRAINT credit_grants_held_not_negative CHECK (held >= 0),
    captured bigint NOT NULL DEFAULT 0 CONSTRAINT credit_grants_captured_not_negative CHECK (captured >= 0),
    expired bigint NOT NULL DEFAULT 0 CONSTRAINT credit_grants_expired_not_negative CHECK (expired >= 0),
    withdrawn bigint NOT NULL DEFAULT 0 CONSTRAINT credit_grants_withdrawn_not_negative CHECK (withdrawn >= 0),
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    CONSTRAINT credit_grants_conserve CHECK (granted = available + held + captured + expired + withdrawn)
) WITH (fillfactor = 50);
CREATE INDEX credit_grants_of_account ON credit_grants (account_id);

-- Every movement of credits, never changed afterwards. A movement is a pair of buckets of one grant; a hold that
-- burns several grants has a row for each, so a release finds its way back.
CREATE TABLE credit_ledger (
    -- Orders an account's movements.
    id bigint GENERATED ALWAYS AS IDENTITY,
    account_id uuid NOT NULL,
    grant_id uuid NOT NULL,
    -- `grant`, `hold`, `capture`, `release`, later `expire`, `withdraw`, `refund`.
    kind text NOT NULL,
    -- What caused it: the task for hold, capture and release, else the grant itself.
    cause_id uuid NOT NULL,
    from_bucket text NOT NULL,
    to_bucket text NOT NULL,
    amount bigint NOT NULL CONSTRAINT credit_ledger_amount_positive CHECK (amount > 0),
    at timestamptz NOT NULL DEFAULT aiv_now(),
    -- The unique key of every money effect: a repeated settlement finds its row and stops.
    CONSTRAINT credit_ledger_effect_once PRIMARY KEY (cause_id, kind, grant_id)
);
CREATE INDEX credit_ledger_of_account ON credit_ledger (account_id, id);

-- Open (not ended) tasks per user and per tenant, kept instead of counted. Moved in the transaction that creates
-- or ends a task.
CREATE TABLE open_counts (
    -- `user` or `tenant`.
    subject_kind text NOT NULL,
    subject_id uuid NOT NULL,
    open integer NOT NULL CONSTRAINT open_counts_not_negative CHECK (open >= 0),
    PRIMARY KEY (subject_kind, subject_id)
) WITH (fillfactor = 50);
