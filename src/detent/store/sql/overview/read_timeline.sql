-- The outcome of the ticks of some jobs between $2 and $3, in $4 steps. $1 ids of jobs, $5 tenant, $6 how many runs of
-- a job are read, the newest first. `until`: the row covers a range of ticks up to this time. Ranges end with their
-- day, so a range that begins before $2 begins on the same day; its step is below zero. Steps are computed in numeric:
-- a tick on the edge of a step belongs to the one that begins there, as elsewhere.
SELECT j.id, floor(extract(epoch FROM h.scheduled_at - $2::timestamptz) * $4::integer
                   / extract(epoch FROM $3::timestamptz - $2::timestamptz))::integer AS step,
       h.status, sum(coalesce(h.ticks, 1))::bigint AS runs,
       max(run_id(h.job, h.scheduled_at, h.serial)::text)::uuid AS sample, max(h.until) AS until, count(*) AS rows,
       min(h.scheduled_at) AS first
  FROM unnest($1::uuid[]) AS v (id) JOIN jobs j ON j.id = v.id AND j.tenant = $5::integer CROSS JOIN LATERAL (
    (SELECT job, scheduled_at, serial, ticks, until,
            CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4 THEN 'skipped'
                ELSE 'missed' END AS status
       FROM run_history
      WHERE job = j.job AND scheduled_at >= $2::timestamptz AND scheduled_at < $3::timestamptz
      ORDER BY scheduled_at DESC LIMIT $6::integer)
    UNION ALL
    (SELECT job, scheduled_at, serial, ticks, until, CASE status WHEN 4 THEN 'skipped' ELSE 'missed' END
       FROM run_history
      WHERE job = j.job AND scheduled_at >= date_trunc('day', $2::timestamptz, 'UTC') AND scheduled_at < $2::timestamptz
        AND until >= $2::timestamptz)
    UNION ALL
    (SELECT job, scheduled_at, serial, NULL, NULL,
            CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying'
                ELSE 'pending' END
       FROM live_runs
      WHERE job = j.job AND scheduled_at >= $2::timestamptz AND scheduled_at < $3::timestamptz)
    UNION ALL
    (SELECT job, greatest(next_tick, $2::timestamptz - interval '1 microsecond'), 0, 1, until, 'pending'
       FROM catchups
      WHERE job = j.job AND kind = 'missed' AND next_tick < $3::timestamptz AND until >= $2::timestamptz)) h
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
