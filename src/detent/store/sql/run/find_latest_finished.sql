-- The newest run of a job that finished, with any outcome. $1 job
SELECT scheduled_at, serial FROM run_history
 WHERE job = $1::bigint AND status IN (1, 2, 3) ORDER BY scheduled_at DESC, serial DESC LIMIT 1
