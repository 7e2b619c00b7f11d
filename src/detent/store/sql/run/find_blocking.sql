-- The run of a job that was under way at a time, if one is known to have been: the newest. $1 job, $2 time, $3 for how
-- long back to look. One of an older tick may have been made later, to make up for it or to repeat it: of such it must
-- be known that it had begun. A retry is later than what it repeats.
SELECT job, scheduled_at, serial FROM (
    SELECT job, scheduled_at, serial FROM live_runs WHERE job = $1::bigint AND scheduled_at < $2::timestamptz
       AND (not_before <= $2::timestamptz OR attempt > 1 OR crashes > 0)
    UNION ALL
    SELECT job, scheduled_at, serial FROM run_history h
     WHERE job = $1::bigint AND scheduled_at < $2::timestamptz AND scheduled_at > $2::timestamptz - $3::interval
       AND status IN (1, 2, 3) AND finished_at >= $2::timestamptz
       AND (started_at <= $2::timestamptz OR attempt > 1 AND EXISTS (
            SELECT FROM attempts a WHERE a.job = h.job AND a.scheduled_at = h.scheduled_at AND a.serial = h.serial
               AND a.started_at <= $2::timestamptz))) AS under_way
 ORDER BY scheduled_at DESC, serial DESC LIMIT 1
