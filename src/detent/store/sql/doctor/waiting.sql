-- Runs that are ready and wait for a worker for more than $1, by queue, and whether a limit may be why; $2 job or NULL.
-- On-demand runs are counted up to $3 at each place where they wait. Those of paused tasks, or that wait for a lane or
-- a key, do not wait for a worker.
WITH ready AS (
    SELECT queue, job, not_before, 1::bigint AS runs FROM live_runs
     WHERE owner IS NULL AND lane >= 0 AND not_before < now() - $1::interval
       AND ($2::bigint IS NULL OR job = $2::bigint)
    UNION ALL
    SELECT h.queue, h.job, h.not_before, b.runs FROM backlog_heads h CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM backlog WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority
               AND NOT parked AND not_before < now() - $1::interval LIMIT $3::integer) counted) b
     WHERE h.startable AND h.not_before < now() - $1::interval AND ($2::bigint IS NULL OR h.job = $2::bigint))
SELECT q.tenant, q.name AS queue, q.needs, t.name AS of_tenant,
       sum(r.runs)::bigint AS runs, min(r.not_before) AS oldest,
       (array_agg(DISTINCT j.name))[1:3] AS names, EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant
           AND (l.queue IS NULL OR l.queue = q.name)) AS limited
  FROM ready r JOIN queues q USING (queue) JOIN jobs j USING (job) JOIN tenants t ON t.tenant = q.tenant
 GROUP BY q.queue, q.tenant, q.name, q.needs, t.name ORDER BY runs DESC LIMIT 10
