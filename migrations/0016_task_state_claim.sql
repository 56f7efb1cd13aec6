-- task-state: claiming, as a function. Between the first look and the commit of a claim nobody else can claim for the
-- same provider account, and a queued task starts no sooner than its claim is through; so both are one round trip, and
-- the lock is held only for as long as PostgreSQL itself needs.
--
-- One element per wish: ids: the task; attempt_nos: the number that its slots were reserved for, one more than its attempts so
-- far; accounts, models: where it goes; account_limits, model_limits: live attempts that they may have; submit_ms: how long
-- the submit may be on its way; workers: who claims. from_status, to_status, event, event_stage: what the state machine
-- says of a claim.
-- Claims the tasks that are queued, due, and within both limits, in the given order, with a fencing token each, and
-- returns their rows. Why one of the others is not among them is for the caller to read from its row.
CREATE FUNCTION task_state_claim(
    ids uuid[], attempt_nos integer[], accounts text[], models text[], account_limits bigint[], model_limits bigint[],
    submit_ms bigint[], workers text[], from_status text, to_status text, event text, event_stage text)
RETURNS SETOF generation_tasks LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- A statement of its own: what follows must see what the last owner of the lock left. Whoever waits here holds nothing
    -- that others need.
    PERFORM pg_advisory_xact_lock(hashtextextended('claim:' || a.account, 0))
    FROM (SELECT DISTINCT unnest(accounts) AS account ORDER BY 1) AS a;

    RETURN QUERY
    WITH wish AS MATERIALIZED (
        SELECT w.* FROM unnest(ids, attempt_nos, accounts, models, account_limits, model_limits, submit_ms, workers)
            WITH ORDINALITY
            AS w (id, attempt_no, account, model, account_limit, model_limit, submit_ms, worker, place)
        JOIN generation_tasks t ON t.id = w.id
        WHERE t.status = from_status AND t.attempt_no = w.attempt_no - 1 AND t.deadline_at > aiv_now()
          AND (t.not_before IS NULL OR t.not_before <= aiv_now())),
    live AS MATERIALIZED (
        SELECT a.provider_account_id AS account, a.model, count(*) AS live FROM task_attempts a
        WHERE a.closed_at IS NULL AND a.through_at IS NULL AND a.provider_account_id = ANY (accounts)
        GROUP BY a.provider_account_id, a.model),
    -- A wish that its model has no room for counts against its account all the same, so never too many are granted.
    placed AS (
        SELECT w.*,
               row_number() OVER (PARTITION BY w.account ORDER BY w.place)
                   + (SELECT coalesce(sum(l.live), 0) FROM live l WHERE l.account = w.account) AS of_account,
               row_number() OVER (PARTITION BY w.account, w.model ORDER BY w.place)
                   + (SELECT coalesce(sum(l.live), 0) FROM live l WHERE l.account = w.account AND l.model = w.model)
                   AS of_model
        FROM wish w),
    -- In key order, like every statement that locks several rows.
    granted AS MATERIALIZED (
        SELECT p.*, nextval('fencing_tokens') AS token FROM placed p
        WHERE p.of_account <= p.account_limit AND p.of_model <= p.model_limit
        ORDER BY p.id),
    -- The wish was read without a lock: a task that was cancelled meanwhile is not queued any more.
    moved AS (
        UPDATE generation_tasks t SET status = to_status, version = t.version + 1, attempt_no = g.attempt_no,
               worker_id = g.worker, fencing_token = g.token, provider_account_id = g.account, not_before = NULL,
               updated_at = aiv_now()
        FROM granted g
        WHERE t.id = g.id AND t.status = from_status AND t.attempt_no = g.attempt_no - 1
        RETURNING t.*),
    told AS (
        INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
        SELECT m.id, m.version, event, m.status, event_stage, m.attempt_no, m.updated_at, 0 FROM moved m),
    opened AS (
        INSERT INTO task_attempts (task_id, attempt_no, tenant_id, user_id, provider_account_id, model, worker_id,
                                   fencing_token, claimed_at, submit_until)
        SELECT m.id, m.attempt_no, m.tenant_id, m.user_id, g.account, g.model, g.worker, g.token, m.updated_at,
               m.updated_at + g.submit_ms * interval '1 ms'
        FROM moved m JOIN granted g ON g.id = m.id)
    SELECT m.* FROM moved m;
END
$$;
