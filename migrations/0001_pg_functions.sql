-- How this schema is read
-- ========================
-- Each file is named NNNN_<owner>_<what>.sql after the crate that owns the tables in it: only that crate reads or
-- writes them. Migrations expand first and contract in a later release: binary N runs on schema N and N+1.
--
-- Insert-heavy tables have no foreign keys: eight of them cost an admission more than twice its CPU. The owners
-- keep the references, and `aivideo audit` proves them.
--
-- Lock order. Every multi-row statement first locks its rows by SELECT ... ORDER BY primary key FOR NO KEY UPDATE,
-- and tables are locked in this order, everywhere:
--   1. idempotency_keys   2. generation_tasks   3. credit_accounts   4. credit_grants   5. quota windows, open_counts

-- The instant that decides. Read once per transaction; durations are measured elsewhere. A test may set
-- `aiv.test_now` for its session (or database) and thereby stand at any instant.
CREATE FUNCTION aiv_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(nullif(current_setting('aiv.test_now', true), '')::timestamptz, now())
$$;
