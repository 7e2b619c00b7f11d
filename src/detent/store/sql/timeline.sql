-- What became of the ticks of some jobs between $2 and $3, in $4 steps. $1 ids of jobs, $5 tenant, $6 how many runs of a
-- job are looked at, the newest first.
SELECT j.id, width_bucket(extract(epoch FROM h.scheduled_at)::float8, extract(epoch FROM $2::timestamptz)::float8,
                          extract(epoch FROM $3::timestamptz)::float8, $4::integer) - 1 AS step,
       h.status, sum(coalesce(h.ticks, 1))::bigint AS runs, max(run_id(h.job, h.scheduled_at, h.serial)::text)::uuid AS sample
  FROM unnest($1::uuid[]) AS v (id) JOIN jobs j ON j.id = v.id AND j.tenant = $5::integer CROSS JOIN LATERAL (
    (SELECT job, scheduled_at, serial, ticks,
            CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4 THEN 'skipped' ELSE 'missed' END AS status
       FROM run_history
      WHERE job = j.job AND scheduled_at >= $2::timestamptz AND scheduled_at < $3::timestamptz
      ORDER BY scheduled_at DESC LIMIT $6::integer)
    UNION ALL
    (SELECT job, scheduled_at, serial, NULL,
            CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying' ELSE 'pending' END
       FROM live_runs
      WHERE job = j.job AND scheduled_at >= $2::timestamptz AND scheduled_at < $3::timestamptz)) h
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
