-- ledger: daily quotas. How many tasks of a user, and of a tenant, were accepted on a local day of the tenant's time zone,
-- and neither failed nor were canceled since.
--
-- A task of an owner with a quota is counted in two windows, its user's and its tenant's, and remembers the day
-- (generation_tasks.quota_day), so that its unit goes back to the very windows that were charged, whenever it ends. Who has
-- no quota has no windows.

CREATE TABLE quota_windows (
    -- `user` or `tenant`.
    subject_kind text NOT NULL,
    subject_id uuid NOT NULL,
    -- The first instant of the local day.
    starts_at timestamptz NOT NULL,
    used integer NOT NULL CONSTRAINT quota_windows_not_negative CHECK (used >= 0),
    PRIMARY KEY (subject_kind, subject_id, starts_at)
) WITH (fillfactor = 50);
-- Rows come nearly in the order of their age, so a block range index serves the retirement and costs an insert nothing.
CREATE INDEX quota_windows_age ON quota_windows USING brin (starts_at) WITH (pages_per_range = 32);

-- As ledger_lock_admission of three arguments, which the release before calls, and locks the windows of the given days as well,
-- before the open counts. What it returns is of one shape again, with these rows besides:
--   `tenant_day`, `user_day` (a window): id, available = used, at = its first instant
-- and `at` in place of a grant's `expires_at`. Without days no window is looked at.
CREATE FUNCTION ledger_lock_admission(
    accounts uuid[], kinds text[], subjects uuid[], day_kinds text[], day_subjects uuid[], days timestamptz[])
RETURNS TABLE (what text, id uuid, owner uuid, available bigint, held bigint, priority integer, at timestamptz)
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
    IF cardinality(days) > 0 THEN
        FOR look IN 1..2 LOOP
            RETURN QUERY SELECT w.subject_kind || '_day', w.subject_id, NULL::uuid, w.used::bigint, NULL::bigint,
                    NULL::integer, w.starts_at
                FROM quota_windows w
                WHERE (w.subject_kind, w.subject_id, w.starts_at)
                      IN (SELECT * FROM unnest(day_kinds, day_subjects, days))
                ORDER BY w.subject_kind, w.subject_id, w.starts_at FOR NO KEY UPDATE;
            GET DIAGNOSTICS seen = ROW_COUNT;
            EXIT WHEN look = 2 OR seen >= cardinality(days);
            INSERT INTO quota_windows (subject_kind, subject_id, starts_at, used)
            SELECT d.kind, d.id, d.day, 0 FROM unnest(day_kinds, day_subjects, days) AS d (kind, id, day)
            ORDER BY 1, 2, 3
            ON CONFLICT DO NOTHING;
        END LOOP;
    END IF;
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

-- Charges windows that ledger_lock_admission has locked: so many tasks each. Returns how many windows were charged, which
-- the caller compares with what it meant.
CREATE FUNCTION ledger_charge_days(kinds text[], subjects uuid[], days timestamptz[], added integer[])
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    charged bigint;
BEGIN
    IF cardinality(days) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE quota_windows w SET used = w.used + d.added
    FROM unnest(kinds, subjects, days, added) AS d (kind, id, day, added)
    WHERE w.subject_kind = d.kind AND w.subject_id = d.id AND w.starts_at = d.day;
    GET DIAGNOSTICS charged = ROW_COUNT;
    RETURN charged;
END
$$;

-- As ledger_settle of six arguments, and gives windows the units of tasks back that failed or were canceled: so many each, each
-- window once. Without days no window is looked at, and no lock is taken that is not taken there. A window that has been retired
-- meanwhile gets nothing, since its day is long over.
CREATE FUNCTION ledger_settle(
    tasks uuid[], kinds text[], accounts uuid[], subject_kinds text[], subjects uuid[], ended integer[],
    day_kinds text[], day_subjects uuid[], days timestamptz[], given integer[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
#variable_conflict use_variable
BEGIN
    IF cardinality(days) > 0 THEN
        -- In the global order: accounts and grants come before windows, and open counts after them.
        PERFORM 1 FROM credit_accounts a WHERE a.id = ANY (accounts) ORDER BY a.id FOR NO KEY UPDATE;
        PERFORM 1 FROM credit_grants g
            WHERE g.id IN (SELECT l.grant_id FROM credit_ledger l WHERE l.cause_id = ANY (tasks) AND l.kind = 'hold')
            ORDER BY g.id FOR NO KEY UPDATE;
        PERFORM 1 FROM quota_windows w
            WHERE (w.subject_kind, w.subject_id, w.starts_at)
                  IN (SELECT * FROM unnest(day_kinds, day_subjects, days))
            ORDER BY w.subject_kind, w.subject_id, w.starts_at FOR NO KEY UPDATE;
        UPDATE quota_windows w SET used = w.used - d.given
        FROM unnest(day_kinds, day_subjects, days, given) AS d (kind, id, day, given)
        WHERE w.subject_kind = d.kind AND w.subject_id = d.id AND w.starts_at = d.day;
    END IF;
    RETURN ledger_settle(tasks, kinds, accounts, subject_kinds, subjects, ended);
END
$$;
