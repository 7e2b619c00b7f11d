-- The stored steps of a run with their results, for its next attempt. $1 job, $2 scheduled_at, $3 serial. On a
-- handler's connection, as add_step.
SELECT name, result FROM "{schema}".run_steps
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer
