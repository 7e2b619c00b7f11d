-- What is recorded for the ticks of some jobs in (after, until]: in history, in live runs, and in ticks still to be
-- caught up. $1 jobs, $2 after, $3 until. Ranges end with their day, so a range that begins before `after` begins on
-- the same day.
SELECT h.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT job, scheduled_at, coalesce(until, scheduled_at) AS until, ticks, status, NULL::text AS live, reason,
           started_at, attempt, finished_at
      FROM run_history
     WHERE job = v.job AND scheduled_at > $2::timestamptz AND scheduled_at <= $3::timestamptz AND serial = 0
    UNION ALL
    SELECT job, scheduled_at, until, ticks, status, NULL, reason, started_at, attempt, finished_at
      FROM run_history
     WHERE job = v.job AND scheduled_at >= date_trunc('day', $2::timestamptz, 'UTC') AND scheduled_at <= $2::timestamptz
       AND until > $2::timestamptz AND serial = 0) h
UNION ALL
SELECT job, scheduled_at, scheduled_at, NULL, NULL,
       CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END,
       CASE WHEN cancel THEN 'cancelling' END, started_at, attempt, NULL
  FROM live_runs
 WHERE job = ANY ($1::bigint[]) AND scheduled_at > $2::timestamptz AND scheduled_at <= $3::timestamptz AND serial = 0
UNION ALL
SELECT job, next_tick, until, left_over, NULL, 'catching up', NULL, NULL, NULL, NULL
  FROM catchups
 WHERE job = ANY ($1::bigint[]) AND kind = 'missed' AND next_tick <= $3::timestamptz AND until > $2::timestamptz
