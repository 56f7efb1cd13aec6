-- task-state: every accepted task paid for two indexes of live tasks by their owner. Since 0026 the ready queue's heads are read by
-- their turn and nothing reads generation_tasks_live_by_owner any more. A process of the release before still finds
-- what it looks for, by generation_tasks_of_user, only more slowly.
DROP INDEX generation_tasks_live_by_owner;
