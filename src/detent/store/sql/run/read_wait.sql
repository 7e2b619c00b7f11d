-- What a live run that no worker has claimed waits for. $1 job, $2 scheduled_at, $3 serial. `stopped`: a limit lets no
-- run of its queue or tenant start.
SELECT r.lane < 0 AS behind, r.not_before, r.attempt, now() AS now, q.name AS queue, q.needs,
       k.held_at IS NOT NULL AS held,
       r.queue = ANY (ARRAY(SELECT queue FROM suspended_queues)) AS suspended,
       EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant AND (l.queue IS NULL OR l.queue = q.name)
           AND l.max_concurrent = 0) AS stopped
  FROM live_runs r JOIN queues q USING (queue) CROSS JOIN cluster k
 WHERE r.job = $1::bigint AND r.scheduled_at = $2::timestamptz AND r.serial = $3::integer AND r.owner IS NULL
