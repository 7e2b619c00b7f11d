-- Jobs of these tenants with a tick that no node can fire. $1 tenants, $2 limit
SELECT 'set_aside' AS kind, 1 AS events, now() AS last_at, min(s.tick) AS tick, 0 AS serial, min(s.why) AS detail,
       j.job, j.tenant, j.name, q.name AS queue, j.tags
  FROM set_aside_jobs s JOIN jobs j USING (job) JOIN cursors c USING (job) JOIN queues q ON q.queue = c.queue
 WHERE j.tenant = ANY ($1::integer[]) AND j.status <> 'deleted'
 GROUP BY j.job, j.tenant, j.name, q.name, j.tags ORDER BY min(s.since), j.job LIMIT $2::integer
