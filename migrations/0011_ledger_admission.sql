-- ledger: what an admission asks of its tables, in one round trip instead of three. A busy account admits one batch
-- of submits after the other, and what a batch waits for is not the work but the way there and back.

-- Locks accounts, then their spendable grants, then the open counts, each in key order, and returns their figures
-- in rows of one shape:
--   `account`: id, available, held                      `grant`: id, owner = its account, available, priority, expires_at
--   `tenant`, `user` (an open count): id, available = how many are open
-- Each statement has a snapshot of its own, so what is locked is seen as the last owner of the lock left it.
-- The first task of a subject makes its row; two first tasks at once meet at the unique key, and the lock comes from
-- the second look. A row that is returned twice has its figures in the later one.
CREATE FUNCTION ledger_lock_admission(accounts uuid[], kinds text[], subjects uuid[])
RETURNS TABLE (what text, id uuid, owner uuid, available bigint, held bigint, priority integer, expires_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    seen bigint;
BEGIN
    RETURN QUERY SELECT 'account', a.id, NULL::uuid, a.available, a.held, NULL::integer, NULL::timestamptz
        FROM credit_accounts a WHERE a.id = ANY (accounts) ORDER BY a.id FOR NO KEY UPDATE;
    RETURN QUERY SELECT 'grant', g.id, g.account_id, g.available, g.held, g.priority, g.expires_at
        FROM credit_grants g
        WHERE g.account_id = ANY (accounts) AND g.available > 0 AND (g.expires_at IS NULL OR g.expires_at > aiv_now())
        ORDER BY g.id FOR NO KEY UPDATE;
    FOR look IN 1..2 LOOP
        RETURN QUERY SELECT c.subject_kind, c.subject_id, NULL::uuid, c.open::bigint, NULL::bigint, NULL::integer,
                NULL::timestamptz
            FROM open_counts c
            WHERE (c.subject_kind, c.subject_id) IN (SELECT * FROM unnest(kinds, subjects))
            ORDER BY c.subject_kind, c.subject_id FOR NO KEY UPDATE;
        GET DIAGNOSTICS seen = ROW_COUNT;
        EXIT WHEN look = 2 OR seen >= cardinality(subjects);
        INSERT INTO open_counts (subject_kind, subject_id, open)
        SELECT s.kind, s.id, 0 FROM unnest(kinds, subjects) AS s(kind, id) ORDER BY 1, 2
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;
