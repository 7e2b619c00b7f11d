-- Jobs of these tenants whose missed ticks are to be caught up, those with the most first. $1 tenants, $2 limit
SELECT 'catch_up' AS kind, k.ticks AS events, now() AS last_at, k.since AS tick, 0 AS serial, NULL AS detail, j.job,
       j.tenant, j.name, q.name AS queue, j.tags
  FROM (SELECT job, sum(left_over)::bigint AS ticks, min(since) AS since FROM catchups WHERE kind = 'missed'
         GROUP BY job) k
  JOIN jobs j USING (job) JOIN cursors c USING (job) JOIN queues q ON q.queue = c.queue
 WHERE j.tenant = ANY ($1::integer[]) AND j.status <> 'deleted' ORDER BY k.ticks DESC, j.job LIMIT $2::integer
