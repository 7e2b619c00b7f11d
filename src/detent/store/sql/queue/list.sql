-- The queues of a tenant by name, also those that have only a limit. $1 tenant, $2 name or NULL for all. `ready` is
-- what queue/read_depths counts.
WITH counted AS (
    SELECT q.name, count(*) FILTER (WHERE r.owner IS NULL) AS waiting,
           count(*) FILTER (WHERE r.owner IS NOT NULL) AS running,
           count(*) FILTER (WHERE is_ready) AS ready, min(r.not_before) FILTER (WHERE is_ready) AS oldest
      FROM queues q JOIN live_runs r USING (queue)
     CROSS JOIN LATERAL (SELECT r.owner IS NULL AND r.lane >= 0 AND r.not_before <= now() AS is_ready) of_run
     WHERE q.tenant = $1::integer AND ($2::text IS NULL OR q.name = $2::text) GROUP BY q.name),
names AS (
    SELECT name FROM queues WHERE tenant = $1::integer
     UNION SELECT queue FROM limits WHERE tenant = $1::integer AND queue IS NOT NULL)
SELECT n.name, l.max_concurrent, l.rate_per_second, coalesce(c.waiting, 0) AS waiting,
       coalesce(c.ready, 0) AS ready, coalesce(c.running, 0) AS running, c.oldest AS oldest_ready_at, now() AS read_at,
       k.channels, k.needs
  FROM names n LEFT JOIN limits l ON l.tenant = $1::integer AND l.queue = n.name LEFT JOIN counted c ON c.name = n.name
 CROSS JOIN LATERAL (
    SELECT array_agg(q.queue ORDER BY q.queue) AS channels, array_agg(q.needs ORDER BY q.queue) AS needs
      FROM queues q WHERE q.tenant = $1::integer AND q.name = n.name) k
 WHERE $2::text IS NULL OR n.name = $2::text ORDER BY n.name
