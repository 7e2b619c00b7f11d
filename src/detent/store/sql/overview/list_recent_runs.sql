-- The newest runs of some jobs, newest first, including open ones. $1 ids of jobs, $2 how many of each, $3 tenant
SELECT j.id, r.* FROM unnest($1::uuid[]) AS v (id) JOIN jobs j ON j.id = v.id AND j.tenant = $3::integer
       CROSS JOIN LATERAL (
    (SELECT run_id(job, scheduled_at, serial) AS run, scheduled_at,
            CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying'
                ELSE 'pending' END AS status,
            started_at, NULL::timestamptz AS finished_at, NULL::integer AS ticks, attempt, NULL::text AS reason
       FROM live_runs WHERE job = j.job ORDER BY scheduled_at DESC LIMIT $2::integer)
    UNION ALL
    (SELECT run_id(job, scheduled_at, serial), scheduled_at,
            CASE status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4 THEN 'skipped'
                ELSE 'missed' END,
            started_at, finished_at, ticks, attempt, reason
       FROM run_history WHERE job = j.job ORDER BY scheduled_at DESC, serial DESC LIMIT $2::integer)) r
 ORDER BY j.id, r.scheduled_at DESC
