-- The run of a job that was under way at a time, if one was: the newest. $1 job, $2 time, $3 for how long back to look
SELECT job, scheduled_at, serial FROM (
    SELECT job, scheduled_at, serial FROM live_runs WHERE job = $1::bigint AND scheduled_at < $2::timestamptz
    UNION ALL
    SELECT job, scheduled_at, serial FROM run_history
     WHERE job = $1::bigint AND scheduled_at < $2::timestamptz AND scheduled_at > $2::timestamptz - $3::interval
       AND status IN (1, 2, 3) AND finished_at >= $2::timestamptz) AS under_way
 ORDER BY scheduled_at DESC, serial DESC LIMIT 1
