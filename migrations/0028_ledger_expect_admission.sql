-- ledger: an admission that was decided before anything was locked. A writer that committed a moment ago knows what its
-- accounts have left; it decides the next batch against that, and one statement locks, compares and writes.

-- Locks accounts, their spendable grants and open counts as ledger_lock_admission does, and compares: the spendable grants of
-- the accounts must be exactly these with exactly so much available each, and of each subject at most `most` tasks may be
-- open. Raises AV001 when anything is otherwise, and also when `premise` does not hold; then nothing of the statement has
-- happened, and the caller decides again against locked figures. A count that nobody has made yet is otherwise.
CREATE FUNCTION ledger_expect_admission(
    premise boolean, accounts uuid[], grants uuid[], availables bigint[], kinds text[], subjects uuid[], most integer[])
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found_accounts bigint;
    same_grants boolean;
    room boolean;
BEGIN
    IF premise THEN
        PERFORM 1 FROM credit_accounts a WHERE a.id = ANY (accounts) ORDER BY a.id FOR NO KEY UPDATE;
        GET DIAGNOSTICS found_accounts = ROW_COUNT;
        SELECT count(*) = cardinality(grants) AND coalesce(bool_and(e.available IS NOT DISTINCT FROM g.available), TRUE)
        INTO same_grants
        FROM (SELECT g.id, g.available FROM credit_grants g
              WHERE g.account_id = ANY (accounts) AND g.available > 0
                    AND (g.expires_at IS NULL OR g.expires_at > aiv_now())
              ORDER BY g.id FOR NO KEY UPDATE) AS g
             LEFT JOIN unnest(grants, availables) AS e (id, available) ON e.id = g.id;
        SELECT count(*) = cardinality(subjects) AND coalesce(bool_and(c.open <= e.most), TRUE)
        INTO room
        FROM (SELECT c.subject_kind, c.subject_id, c.open FROM open_counts c
              WHERE (c.subject_kind, c.subject_id) IN (SELECT * FROM unnest(kinds, subjects))
              ORDER BY c.subject_kind, c.subject_id FOR NO KEY UPDATE) AS c
             JOIN unnest(kinds, subjects, most) AS e (kind, id, most) ON e.kind = c.subject_kind AND e.id = c.subject_id;
        IF found_accounts = cardinality(accounts) AND same_grants AND room THEN
            RETURN TRUE;
        END IF;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'AV001', MESSAGE = 'the figures are not those that were expected';
END
$$;
