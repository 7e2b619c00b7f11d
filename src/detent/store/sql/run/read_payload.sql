-- The payload that a run was given when it was enqueued or triggered, if it has one of its own. $1 job, $2
-- scheduled_at, $3 serial. Versions before on-demand runs kept it in run_payloads (serials below 201326592).
SELECT payload FROM live_runs
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer AND payload IS NOT NULL
UNION ALL
SELECT payload FROM backlog
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer AND payload IS NOT NULL
UNION ALL
SELECT payload FROM run_history
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer AND payload IS NOT NULL
UNION ALL
SELECT payload FROM run_payloads
 WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND $3::integer < 201326592
LIMIT 1
