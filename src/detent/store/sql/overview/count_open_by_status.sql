-- How many runs of a tenant are open, by status, counted up to a limit. $1 tenant, $2 limit
SELECT count(*) FILTER (WHERE r.owner IS NOT NULL) AS running,
       count(*) FILTER (WHERE r.owner IS NULL AND (r.attempt > 1 OR r.crashes > 0)) AS retrying,
       count(*) FILTER (WHERE r.owner IS NULL AND r.attempt = 1 AND r.crashes = 0) AS pending, count(*) AS looked_at
  FROM (SELECT l.owner, l.attempt, l.crashes FROM live_runs l JOIN queues q USING (queue)
         WHERE q.tenant = $1::integer LIMIT $2::integer) r
