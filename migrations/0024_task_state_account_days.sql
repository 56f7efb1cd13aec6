-- task-state: daily limits of provider accounts. How many jobs an account was given today is counted from the attempts
-- themselves, by the claim, under the lock that makes counting and claiming one step. A day is one of UTC. Attempts that came
-- to no job (never sent, refused, proved absent) do not count.

CREATE INDEX task_attempts_by_day ON task_attempts (provider_account_id, claimed_at);

-- How many jobs an account was given today.
CREATE FUNCTION task_state_jobs_today(account text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM task_attempts a
    WHERE a.provider_account_id = account AND a.claimed_at >= date_trunc('day', aiv_now(), 'UTC')
      AND (a.outcome IS NULL OR a.outcome NOT IN ('never_sent', 'refused', 'absent'))
$$;

-- As task_state_claim of twelve arguments, which the release before calls, and keeps to the accounts' daily limits as well:
-- day_limits: jobs that the account may be given in a day, null where it has no such limit.
CREATE FUNCTION task_state_claim(
    ids uuid[], attempt_nos integer[], accounts text[], models text[], account_limits bigint[], model_limits bigint[],
    submit_ms bigint[], workers text[], day_limits bigint[], from_status text, to_status text, event text, event_stage text)
RETURNS SETOF generation_tasks LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    -- A statement of its own: what follows must see what the last owner of the lock left. Whoever waits here holds nothing
    -- that others need.
    PERFORM pg_advisory_xact_lock(hashtextextended('claim:' || a.account, 0))
    FROM (SELECT DISTINCT unnest(accounts) AS account ORDER BY 1) AS a;

    RETURN QUERY
    WITH wish AS MATERIALIZED (
        SELECT w.* FROM unnest(ids, attempt_nos, accounts, models, account_limits, model_limits, submit_ms, workers, day_limits)
            WITH ORDINALITY
            AS w (id, attempt_no, account, model, account_limit, model_limit, submit_ms, worker, day_limit, place)
        JOIN generation_tasks t ON t.id = w.id
        WHERE t.status = from_status AND t.attempt_no = w.attempt_no - 1 AND t.deadline_at > aiv_now()
          AND (t.not_before IS NULL OR t.not_before <= aiv_now())),
    live AS MATERIALIZED (
        SELECT a.provider_account_id AS account, a.model, count(*) AS live FROM task_attempts a
        WHERE a.closed_at IS NULL AND a.through_at IS NULL AND a.provider_account_id = ANY (accounts)
        GROUP BY a.provider_account_id, a.model),
    today AS MATERIALIZED (
        SELECT d.account, task_state_jobs_today(d.account) AS jobs
        FROM (SELECT DISTINCT w.account FROM wish w WHERE w.day_limit IS NOT NULL) AS d),
    -- A wish that its model has no room for counts against its account all the same, so never too many are granted.
    placed AS (
        SELECT w.*,
               row_number() OVER (PARTITION BY w.account ORDER BY w.place)
                   + (SELECT coalesce(sum(l.live), 0) FROM live l WHERE l.account = w.account) AS of_account,
               row_number() OVER (PARTITION BY w.account, w.model ORDER BY w.place)
                   + (SELECT coalesce(sum(l.live), 0) FROM live l WHERE l.account = w.account AND l.model = w.model)
                   AS of_model,
               row_number() OVER (PARTITION BY w.account ORDER BY w.place)
                   + (SELECT coalesce(sum(d.jobs), 0) FROM today d WHERE d.account = w.account) AS of_day
        FROM wish w),
    -- In key order, like every statement that locks several rows.
    granted AS MATERIALIZED (
        SELECT p.*, nextval('fencing_tokens') AS token FROM placed p
        WHERE p.of_account <= p.account_limit AND p.of_model <= p.model_limit
          AND (p.day_limit IS NULL OR p.of_day <= p.day_limit)
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
