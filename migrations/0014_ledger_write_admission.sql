-- ledger: writing what an admission decided, as a function, so that tasks and their holds are written in one round trip.
-- Every row is locked by ledger_lock_admission and the sums are made by the caller, one per row. Returns how many
-- accounts, grants and open counts were changed, which the caller compares with what it meant.
CREATE FUNCTION ledger_write_admission(
    accounts uuid[], account_sums bigint[], grants uuid[], grant_sums bigint[],
    moved_accounts uuid[], moved_grants uuid[], moved_tasks uuid[], moved_amounts bigint[],
    kinds text[], subjects uuid[], added integer[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    changed bigint[];
BEGIN
    WITH account AS (
        UPDATE credit_accounts a SET available = a.available - d.amount, held = a.held + d.amount
        FROM unnest(accounts, account_sums) AS d (id, amount) WHERE a.id = d.id RETURNING 1),
    spent AS (
        UPDATE credit_grants g SET available = g.available - d.amount, held = g.held + d.amount
        FROM unnest(grants, grant_sums) AS d (id, amount) WHERE g.id = d.id RETURNING 1),
    movement AS (
        INSERT INTO credit_ledger (account_id, grant_id, kind, cause_id, from_bucket, to_bucket, amount, at)
        SELECT m.account_id, m.grant_id, 'hold', m.task_id, 'available', 'held', m.amount, (SELECT aiv_now())
        FROM unnest(moved_accounts, moved_grants, moved_tasks, moved_amounts)
             AS m (account_id, grant_id, task_id, amount)),
    opened AS (
        UPDATE open_counts c SET open = c.open + d.added
        FROM unnest(kinds, subjects, added) AS d (kind, id, added)
        WHERE c.subject_kind = d.kind AND c.subject_id = d.id RETURNING 1)
    SELECT ARRAY[(SELECT count(*) FROM account), (SELECT count(*) FROM spent), (SELECT count(*) FROM opened)]
    INTO changed;
    RETURN changed;
END
$$;
