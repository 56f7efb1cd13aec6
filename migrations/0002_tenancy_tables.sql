-- tenancy: who uses the platform.

CREATE TABLE tenants (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    -- A tier's name; its figures come from configuration.
    tier text NOT NULL DEFAULT 'free',
    time_zone text NOT NULL DEFAULT 'UTC',
    -- Whose credit account pays for a user's tasks.
    payer text NOT NULL DEFAULT 'user' CONSTRAINT tenants_payer_known CHECK (payer IN ('user', 'tenant')),
    -- The account that pays when the tenant is the payer.
    account_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT aiv_now()
);

CREATE TABLE users (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT users_tenant_exists REFERENCES tenants (id),
    name text NOT NULL,
    -- The tenant's own name for this user.
    external_id text,
    -- This user's own account, used when the user is the payer.
    account_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    CONSTRAINT users_external_id_unique UNIQUE (tenant_id, external_id)
);

CREATE TABLE projects (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL CONSTRAINT projects_tenant_exists REFERENCES tenants (id),
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT aiv_now()
);
CREATE INDEX projects_of_tenant ON projects (tenant_id, id);

CREATE TABLE project_members (
    project_id uuid NOT NULL CONSTRAINT project_members_project_exists REFERENCES projects (id),
    user_id uuid NOT NULL CONSTRAINT project_members_user_exists REFERENCES users (id),
    role text NOT NULL CONSTRAINT project_members_role_known CHECK (role IN ('owner', 'editor', 'viewer')),
    PRIMARY KEY (project_id, user_id)
);
CREATE INDEX project_members_of_user ON project_members (user_id);

-- API keys. The secret part exists only in the customer's hands; here lies its SHA-256.
CREATE TABLE api_keys (
    -- The 12 characters between `avk_` and the secret.
    id text PRIMARY KEY,
    user_id uuid NOT NULL CONSTRAINT api_keys_user_exists REFERENCES users (id),
    secret_sha256 bytea NOT NULL CONSTRAINT api_keys_hash_length CHECK (length(secret_sha256) = 32),
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    revoked_at timestamptz
);
CREATE INDEX api_keys_of_user ON api_keys (user_id);

-- Short-lived tokens that a browser may hold. They end with the key that minted them.
CREATE TABLE browser_tokens (
    id uuid PRIMARY KEY,
    key_id text NOT NULL CONSTRAINT browser_tokens_key_exists REFERENCES api_keys (id),
    user_id uuid NOT NULL CONSTRAINT browser_tokens_user_exists REFERENCES users (id),
    secret_sha256 bytea NOT NULL CONSTRAINT browser_tokens_hash_length CHECK (length(secret_sha256) = 32),
    scopes text[] NOT NULL,
    -- Browsers of other origins are refused when this is not empty.
    origins text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX browser_tokens_expiry ON browser_tokens (expires_at);

-- The first answer to each Idempotency-Key, kept for 24 hours. A row exists only together with the effects of
-- its request: it is inserted at the top of the same transaction and deleted when the request is refused.
CREATE TABLE idempotency_keys (
    user_id uuid NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    -- SHA-256 over the parsed, defaulted request with route and query.
    fingerprint bytea NOT NULL,
    -- What the request made (a task, a tenant, a grant), as its text id.
    subject text NOT NULL,
    response_status smallint NOT NULL,
    response_body text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    PRIMARY KEY (user_id, route, key)
);
-- Rows come in the order of their age, so a block range index serves the retirement and costs an insert nothing.
CREATE INDEX idempotency_keys_age ON idempotency_keys USING brin (created_at) WITH (pages_per_range = 32);
