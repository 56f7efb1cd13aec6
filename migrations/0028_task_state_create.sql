-- task-state: making tasks, as a function, so that whoever accepts requests can make them in a statement of its own with
-- what else a request needs. One element per task in the columns of tasks, with their first event and their inputs; the
-- message of each to the scheduler; and what was decided of the ledger (ledger_write_admission, ledger_charge_days), which is
-- expected first (ledger_expect_admission) where `most` is given and nothing is locked yet. The ledger comes last, so that a
-- busy account is locked for the shortest time.
--
-- Without ids it raises AV001 as ledger_expect_admission does: the caller makes them NULL when something else has failed that
-- they depend on. Raises AV002 when other rows were touched than were meant: it may be the whole of a transaction, which
-- nobody looks at before it is committed.
CREATE FUNCTION task_state_create(
    ids uuid[], tenants uuid[], users uuid[], projects uuid[], accounts uuid[], models text[], prices bigint[],
    deadlines timestamptz[], priorities smallint[], quota_days timestamptz[],
    prompts text[], negative_prompts text[], durations integer[], resolutions text[], aspect_ratios text[], seeds bigint[],
    tag_lists text[], traceparents text[],
    first_status text, first_event text, first_stage text, made_at timestamptz,
    topics text[], keys uuid[], payloads text[], shards smallint[],
    held_accounts uuid[], account_sums bigint[], grants uuid[], grant_sums bigint[],
    moved_accounts uuid[], moved_grants uuid[], moved_tasks uuid[], moved_amounts bigint[],
    kinds text[], subjects uuid[], added integer[],
    day_kinds text[], day_subjects uuid[], days timestamptz[], day_added integer[],
    most integer[] DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    appended bigint;
    changed bigint[];
    charged bigint;
BEGIN
    IF ids IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'AV001', MESSAGE = 'what the tasks were to depend on does not hold';
    END IF;
    WITH inputs AS (
        INSERT INTO generation_inputs
            (task_id, prompt, negative_prompt, duration_seconds, resolution, aspect_ratio, seed, traceparent, tags)
        SELECT i.id, i.prompt, i.negative_prompt, i.duration, i.resolution, i.aspect_ratio, i.seed, i.traceparent,
               CASE WHEN i.tags = '[]' THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(i.tags::jsonb)) END
        FROM unnest(ids, prompts, negative_prompts, durations, resolutions, aspect_ratios, seeds, tag_lists, traceparents)
             AS i (id, prompt, negative_prompt, duration, resolution, aspect_ratio, seed, tags, traceparent)),
    history AS (
        INSERT INTO task_events (task_id, version, type, status, stage, attempt_no, at, credits)
        SELECT e.id, 1, first_event, first_status, first_stage, 0, made_at, e.price
        FROM unnest(ids, prices) AS e (id, price))
    INSERT INTO generation_tasks (id, tenant_id, user_id, project_id, account_id, model, price, submit_deadline_at, deadline_at,
                                  priority, status, version, created_at, updated_at, quota_day)
    SELECT t.id, t.tenant, t.owner, t.project, t.account, t.model, t.price, t.deadline, t.deadline, t.priority,
           first_status, 1, made_at, made_at, t.quota_day
    FROM unnest(ids, tenants, users, projects, accounts, models, prices, deadlines, priorities, quota_days)
         AS t (id, tenant, owner, project, account, model, price, deadline, priority, quota_day);
    appended := outbox_append(topics, keys, payloads, shards);
    IF most IS NOT NULL THEN
        PERFORM ledger_expect_admission(held_accounts, account_sums, grants, kinds, subjects, most);
    END IF;
    changed := ledger_write_admission(held_accounts, account_sums, grants, grant_sums, moved_accounts, moved_grants,
                                      moved_tasks, moved_amounts, kinds, subjects, added);
    charged := ledger_charge_days(day_kinds, day_subjects, days, day_added);
    IF (appended, changed, charged) IS DISTINCT FROM
       (cardinality(ids)::bigint,
        ARRAY[cardinality(held_accounts), cardinality(grants), cardinality(kinds)]::bigint[],
        cardinality(days)::bigint) THEN
        RAISE EXCEPTION USING ERRCODE = 'AV002', MESSAGE = format(
            'task_state_create: %s messages, %s rows of the ledger and %s windows were touched', appended, changed, charged);
    END IF;
END
$$;
