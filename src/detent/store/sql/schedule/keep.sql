-- Remove the mark of unused schedules that are used again; a concurrent purge waits, or leaves them alone. Not
-- returned: deleted meanwhile, or already unmarked by another session. $1 schedules
WITH locked AS MATERIALIZED (
    SELECT schedule FROM schedules WHERE schedule = ANY ($1::integer[]) AND unused_since IS NOT NULL ORDER BY schedule
           FOR NO KEY UPDATE)
UPDATE schedules s SET unused_since = NULL FROM locked WHERE s.schedule = locked.schedule RETURNING s.schedule, s.digest
