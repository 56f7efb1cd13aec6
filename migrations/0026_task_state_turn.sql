-- task-state: the turn of a queued task among those of its user and model, which the ready queue goes by: the instant of its
-- creation in milliseconds since 1970, less a minute per step of priority. Nothing that happens to a task changes it, so
-- updates of the row stay HOT. `domain::Priority::turn` says the same.
CREATE FUNCTION task_state_turn(created_at timestamptz, priority smallint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT floor(extract(epoch FROM created_at - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint
           - priority::bigint * 60000
$$;

-- What fills up a user's heads reads their first tasks and no others. It takes the place of generation_tasks_live_by_owner, which
-- the release before goes by; the one after this takes that away.
CREATE INDEX generation_tasks_live_by_turn
    ON generation_tasks (tenant_id, user_id, model, task_state_turn(created_at, priority), id) WHERE ended_at IS NULL;
