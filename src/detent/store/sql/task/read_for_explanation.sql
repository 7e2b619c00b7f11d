-- What an on-demand run waits for. $1 job, $2 scheduled_at, $3 serial. `place`: 'backlog' or 'live', NULL if it is
-- finished. `ahead`: how many runs of its job, queue and priority are to start before it, counted up to 1,000.
-- `holders`: some of the runs that have the places of its concurrency key. `unfinished`: some of the live runs of its
-- job.
SELECT j.name, j.status, j.reason, c.task, c.key_limit, c.key_rate, now() AS now, k.held_at IS NOT NULL AS held,
       w.place, w.parked, w.paced, w.not_before, w.attempt, w.key, w.owner, q.name AS queue,
       w.queue = ANY (ARRAY(SELECT queue FROM suspended_queues)) AS suspended,
       (SELECT count(*) FROM (
            SELECT FROM backlog b WHERE w.place = 'backlog' AND NOT w.parked AND b.job = w.job AND b.queue = w.queue
               AND b.keyed = (w.key IS NOT NULL) AND b.priority = w.priority AND NOT b.parked
               AND b.not_before < w.not_before LIMIT 1000) found) AS ahead,
       ARRAY(SELECT run_id(r.job, r.scheduled_at, r.serial) FROM key_places p
              CROSS JOIN LATERAL (SELECT * FROM live_runs WHERE job = p.job AND lane = p.lane
                                     AND scheduled_at = p.scheduled_at LIMIT 1) r
              WHERE w.parked AND p.scope = CASE WHEN c.key_shared THEN -j.tenant::bigint ELSE j.job END
                AND p.key = w.key
              ORDER BY p.place LIMIT 3) AS holders,
       ARRAY(SELECT run_id(r.job, r.scheduled_at, r.serial) FROM live_runs r
              WHERE w.place = 'backlog' AND NOT c.task AND r.job = j.job ORDER BY r.lane LIMIT 3) AS unfinished,
       q.needs,
       EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant AND (l.queue IS NULL OR l.queue = q.name)
           AND l.max_concurrent = 0) AS stopped
  FROM jobs j JOIN cursors c ON c.job = j.job CROSS JOIN cluster k
  LEFT JOIN (
    SELECT 'backlog' AS place, job, queue, parked, paced, priority, not_before, attempt, key, NULL::bigint AS owner
      FROM backlog WHERE serial = $3::integer AND scheduled_at = $2::timestamptz AND job = $1::bigint
    UNION ALL
    SELECT 'live', job, queue, false, false, priority, not_before, attempt, key, owner FROM live_runs
     WHERE job = $1::bigint AND lane = $3::integer AND scheduled_at = $2::timestamptz
    UNION ALL
    SELECT 'live', job, queue, false, false, priority, not_before, attempt, key, owner FROM live_runs
     WHERE job = $1::bigint AND lane < 32768 AND serial = $3::integer AND scheduled_at = $2::timestamptz) w ON true
  LEFT JOIN queues q ON q.queue = w.queue
 WHERE j.job = $1::bigint
