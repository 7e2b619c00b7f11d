-- The stored steps of a run for people, without their results, in the order in which they were stored. $1 job, $2
-- scheduled_at, $3 serial
SELECT name, attempt, stored_at, took FROM run_steps
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer
 ORDER BY number
