-- ledger: settling what belongs to tasks that have just ended, for the statement that ends them. Whoever settles holds the
-- locks of accounts that others want for their admissions; called as the last part of a statement that is a transaction
-- by itself, the locks are held for no way to PostgreSQL and back at all.
--
-- One element per ended task. tasks, kinds: whose hold, and which way it ends (`capture` or `release`); accounts, tenants,
-- users: whose it is.
-- Returns how many tasks were settled. What ledger_settle leaves to its caller to compare is compared here, since the caller
-- could no longer take it back: a hold that is not there, or a count that is missing, fails the whole statement.
CREATE FUNCTION ledger_settle_ended(tasks uuid[], kinds text[], accounts uuid[], tenants uuid[], users uuid[])
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    subject_kinds text[];
    subjects uuid[];
    ended integer[];
    changed bigint[];
BEGIN
    IF coalesce(cardinality(tasks), 0) = 0 THEN
        RETURN 0;
    END IF;
    SELECT array_agg(s.kind), array_agg(s.id), array_agg(s.ended) INTO subject_kinds, subjects, ended
    FROM (SELECT 'tenant' AS kind, t.id, count(*)::integer AS ended FROM unnest(tenants) AS t (id) GROUP BY t.id
          UNION ALL
          SELECT 'user', u.id, count(*)::integer FROM unnest(users) AS u (id) GROUP BY u.id) AS s;
    changed := ledger_settle(
        tasks, kinds, ARRAY(SELECT DISTINCT a.id FROM unnest(accounts) AS a (id)), subject_kinds, subjects, ended);
    IF changed[1] <> changed[2] OR changed[3] <> changed[4] OR changed[5] <> cardinality(subjects) THEN
        RAISE EXCEPTION 'settle: % of % grants, % of % accounts, % of % open counts were changed',
            changed[2], changed[1], changed[4], changed[3], changed[5], cardinality(subjects);
    END IF;
    RETURN cardinality(tasks);
END
$$;
