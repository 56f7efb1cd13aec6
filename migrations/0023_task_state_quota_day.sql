-- task-state: the day of which a task took a unit, as the first instant of that day in its tenant's time zone; null where its
-- owner had no quota. Written once. When the task fails or is canceled the unit goes back to that day (quota_windows).
ALTER TABLE generation_tasks ADD COLUMN quota_day timestamptz;
