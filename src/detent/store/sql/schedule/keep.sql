-- Schedules that are marked as unused and are used again: the mark goes, and whoever removes them waits or leaves them
-- alone. Not returned: removed meanwhile, or in use by somebody else already. $1 schedules
WITH locked AS MATERIALIZED (
    SELECT schedule FROM schedules WHERE schedule = ANY ($1::integer[]) AND unused_since IS NOT NULL ORDER BY schedule
           FOR NO KEY UPDATE)
UPDATE schedules s SET unused_since = NULL FROM locked WHERE s.schedule = locked.schedule RETURNING s.schedule, s.digest
