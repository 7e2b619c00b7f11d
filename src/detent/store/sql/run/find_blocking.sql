-- The newest run of a job that is known to have been unfinished at a time. $1 job, $2 time, $3 how far back to search.
-- A run of an older tick may have been inserted later, to catch up or to repeat it: such a run counts only if it is
-- known to have begun. A retry is later than the attempt it repeats.
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
