-- tenancy: limits that operators set at run time, over those of the configuration. Every process reads all of them, so
-- they are few, and knows of a change within five seconds.

CREATE TABLE limit_rules (
    -- Whose limit: `tier:<name>`, `tenant:<id>` or `key:<id>`; of several the most particular counts, in reverse order.
    subject text NOT NULL,
    -- Which limit, by the name under which clients are told of it, such as `submit-user` or `submit-model:mock-pro`.
    policy text NOT NULL,
    -- A shadow only counts, and tells when it would have refused; it stands beside the limit that is in force.
    shadow boolean NOT NULL,
    -- How much. A token bucket is `most` tokens, `refill` of them back in every `per_ms`; a strict window is `most` in
    -- any stretch of `per_ms`; a number of tasks is `most` alone; without figures there is no limit.
    most bigint,
    refill bigint,
    per_ms bigint,
    version bigint NOT NULL DEFAULT 1,
    set_at timestamptz NOT NULL DEFAULT aiv_now(),
    PRIMARY KEY (subject, policy, shadow),
    CONSTRAINT limit_rules_figure_whole CHECK (
        (most IS NOT NULL OR (refill IS NULL AND per_ms IS NULL)) AND (refill IS NULL OR per_ms IS NOT NULL)
    )
);
