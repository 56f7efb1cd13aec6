-- ledger: an admission that was decided before anything was locked. A writer that committed a moment ago knows from which grant
-- its accounts burn; it decides the next batch against that, and one statement writes it, locks, and compares.

-- Locks the accounts and open counts as ledger_lock_admission does, and makes sure of what was supposed: each account still
-- burns the grant in its place first, that one has as much available as is to be taken, and of each subject at most `most`
-- tasks are open. So it takes what a decision under locks would take. Grants need no locks of their own here: whoever changes
-- one holds its account. Raises AV001 when anything is otherwise, and then nothing of the statement has happened; the caller
-- decides again under locks. A count that nobody has made yet is otherwise.
CREATE FUNCTION ledger_expect_admission(
    accounts uuid[], sums bigint[], grants uuid[], kinds text[], subjects uuid[], most integer[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    burn boolean;
    room boolean;
BEGIN
    PERFORM 1 FROM credit_accounts a WHERE a.id = ANY (accounts) ORDER BY a.id FOR NO KEY UPDATE;
    -- In a statement of its own, which sees what the last holder of the locks left.
    SELECT coalesce(bool_and(coalesce(next.id = e.grant_id AND next.available >= e.amount, FALSE)), TRUE)
    INTO burn
    FROM unnest(accounts, grants, sums) AS e (account_id, grant_id, amount)
         LEFT JOIN LATERAL (
             SELECT g.id, g.available FROM credit_grants g
             WHERE g.account_id = e.account_id AND g.available > 0 AND (g.expires_at IS NULL OR g.expires_at > aiv_now())
             ORDER BY g.priority, g.expires_at NULLS LAST, g.id
             LIMIT 1) AS next ON TRUE;
    SELECT count(*) = cardinality(subjects) AND coalesce(bool_and(c.open <= e.most), TRUE)
    INTO room
    FROM (SELECT c.subject_kind, c.subject_id, c.open FROM open_counts c
          WHERE (c.subject_kind, c.subject_id) IN (SELECT * FROM unnest(kinds, subjects))
          ORDER BY c.subject_kind, c.subject_id FOR NO KEY UPDATE) AS c
         JOIN unnest(kinds, subjects, most) AS e (kind, id, most) ON e.kind = c.subject_kind AND e.id = c.subject_id;
    IF NOT (burn AND room AND cardinality(grants) = cardinality(accounts)) THEN
        RAISE EXCEPTION USING ERRCODE = 'AV001', MESSAGE = 'the figures are not those that were expected';
    END IF;
END
$$;
