-- $1 schedules to mark as unused from now on, $2 schedules that are used again
WITH changed AS MATERIALIZED (
    SELECT schedule FROM schedules
     WHERE schedule = ANY ($1::integer[]) AND unused_since IS NULL OR schedule = ANY ($2::integer[])
       AND unused_since IS NOT NULL
     ORDER BY schedule FOR NO KEY UPDATE SKIP LOCKED)
UPDATE schedules s SET unused_since = CASE WHEN s.schedule = ANY ($1::integer[]) THEN now() END FROM changed
 WHERE s.schedule = changed.schedule
