-- media: stored files. A row exists only for a file that was verified and lies under its final key.

CREATE TABLE assets (
    id uuid PRIMARY KEY,
    tenant_id uuid NOT NULL,
    user_id uuid NOT NULL,
    project_id uuid,
    -- The task whose output this is; uploads have none.
    task_id uuid,
    -- `output`; later `upload`, `poster`, `preview`.
    kind text NOT NULL,
    storage_key text NOT NULL CONSTRAINT assets_storage_key_unique UNIQUE,
    content_type text NOT NULL,
    size_bytes bigint NOT NULL CONSTRAINT assets_size_positive CHECK (size_bytes > 0),
    sha256 bytea NOT NULL CONSTRAINT assets_hash_length CHECK (length(sha256) = 32),
    created_at timestamptz NOT NULL DEFAULT aiv_now(),
    -- The object is gone on purpose.
    deleted_at timestamptz,
    CONSTRAINT assets_one_per_task_and_kind UNIQUE (task_id, kind)
);
