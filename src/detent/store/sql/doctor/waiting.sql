-- Runs that are ready and wait for a worker for more than $1, by queue, and whether a limit may be why; $2 job or NULL.
SELECT q.name AS queue, q.needs, count(*) AS runs, min(r.not_before) AS oldest,
       (array_agg(DISTINCT j.name))[1:3] AS names, EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant
           AND (l.queue IS NULL OR l.queue = q.name)) AS limited
  FROM live_runs r JOIN queues q USING (queue) JOIN jobs j USING (job)
 WHERE r.owner IS NULL AND r.lane >= 0 AND r.not_before < now() - $1::interval
   AND ($2::bigint IS NULL OR r.job = $2::bigint)
 GROUP BY q.queue, q.name, q.needs ORDER BY runs DESC LIMIT 10
