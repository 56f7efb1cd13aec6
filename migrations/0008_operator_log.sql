-- operator: who changed what by hand. Written in the transaction of the change.

CREATE TABLE operator_log (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The key that was used; null for the command line.
    key_id text,
    verb text NOT NULL,
    subject text NOT NULL,
    before jsonb,
    after jsonb,
    at timestamptz NOT NULL DEFAULT aiv_now()
);
