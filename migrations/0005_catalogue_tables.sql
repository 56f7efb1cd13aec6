-- catalogue: what operators intend. Models, prices and provider accounts themselves come from configuration;
-- what an operator changed at run time is a fact and lies here, so no deploy or flush undoes it.

CREATE TABLE operator_intents (
    -- `account:<provider account>` or `model:<model>`.
    subject text PRIMARY KEY,
    intent text NOT NULL CONSTRAINT operator_intents_known CHECK (intent IN ('pause', 'drain')),
    reason text NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    set_by uuid NOT NULL,
    set_at timestamptz NOT NULL DEFAULT aiv_now()
);
