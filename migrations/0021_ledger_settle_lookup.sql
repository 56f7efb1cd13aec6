-- ledger: settling looks each hold up by its task, whatever the size of the ledger. As a plain join, the plan that is made while
-- the ledger is still empty read every hold there ever was at each settlement and compared; `OFFSET 0` keeps the look-up
-- apart, so that it can only be done task by task, by the key. All else is as before.
CREATE OR REPLACE FUNCTION ledger_settle(
    tasks uuid[], kinds text[], accounts uuid[], subject_kinds text[], subjects uuid[], ended integer[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    settled bigint[];
    counted bigint;
BEGIN
    PERFORM 1 FROM credit_accounts a WHERE a.id = ANY (accounts) ORDER BY a.id FOR NO KEY UPDATE;
    PERFORM 1 FROM credit_grants g
        WHERE g.id IN (SELECT l.grant_id FROM credit_ledger l WHERE l.cause_id = ANY (tasks) AND l.kind = 'hold')
        ORDER BY g.id FOR NO KEY UPDATE;
    WITH hold AS MATERIALIZED (
        SELECT l.account_id, l.grant_id, l.cause_id, l.amount, s.kind AS way,
               CASE s.kind WHEN 'capture' THEN l.amount ELSE 0 END AS captured,
               CASE s.kind WHEN 'capture' THEN 0 ELSE l.amount END AS released
        FROM unnest(tasks, kinds) AS s (task, kind),
             LATERAL (SELECT * FROM credit_ledger l WHERE l.cause_id = s.task AND l.kind = 'hold' OFFSET 0) AS l),
    by_grant AS (
        SELECT h.grant_id AS id, sum(h.captured)::bigint AS captured, sum(h.released)::bigint AS released
        FROM hold h GROUP BY h.grant_id),
    by_account AS (
        SELECT h.account_id AS id, sum(h.captured)::bigint AS captured, sum(h.released)::bigint AS released
        FROM hold h GROUP BY h.account_id),
    grant_changed AS (
        UPDATE credit_grants g SET held = g.held - d.captured - d.released, captured = g.captured + d.captured,
               available = g.available + d.released
        FROM by_grant d WHERE g.id = d.id RETURNING 1),
    account_changed AS (
        UPDATE credit_accounts a SET held = a.held - d.captured - d.released, captured = a.captured + d.captured,
               available = a.available + d.released
        FROM by_account d WHERE a.id = d.id RETURNING 1),
    movement AS (
        INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount, at)
        SELECT h.account_id, h.grant_id, h.way, h.cause_id, 'held',
               CASE h.way WHEN 'capture' THEN 'captured' ELSE 'available' END, h.amount, (SELECT aiv_now())
        FROM hold h)
    SELECT ARRAY[(SELECT count(*) FROM by_grant), (SELECT count(*) FROM grant_changed),
                 (SELECT count(*) FROM by_account), (SELECT count(*) FROM account_changed)]
    INTO settled;
    PERFORM 1 FROM open_counts c
        WHERE (c.subject_kind, c.subject_id) IN (SELECT * FROM unnest(subject_kinds, subjects))
        ORDER BY c.subject_kind, c.subject_id FOR NO KEY UPDATE;
    UPDATE open_counts c SET open = c.open - d.ended
    FROM unnest(subject_kinds, subjects, ended) AS d (kind, id, ended)
    WHERE c.subject_kind = d.kind AND c.subject_id = d.id;
    GET DIAGNOSTICS counted = ROW_COUNT;
    RETURN settled || counted;
END
$$;
