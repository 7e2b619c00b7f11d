-- What runs call that are due and that no worker has claimed, of some tenants, with how many they are. A run that is
-- put off returns to its queue for a short time, so runs that may start within $4 count too. On-demand runs are counted
-- up to $3 at each place where they wait. $1 tenants, $2 job or NULL
WITH waiting AS (
    SELECT r.job, 1::bigint AS runs, r.scheduled_at AS since FROM live_runs r
     WHERE r.owner IS NULL AND r.lane >= 0 AND r.scheduled_at <= now() AND r.not_before < now() + $4::interval
       AND ($2::bigint IS NULL OR r.job = $2::bigint)
    UNION ALL
    SELECT h.job, b.runs, h.not_before FROM backlog_heads h CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM backlog WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority
               AND NOT parked AND not_before < now() + $4::interval LIMIT $3::integer) counted) b
     WHERE h.startable AND h.not_before < now() + $4::interval AND ($2::bigint IS NULL OR h.job = $2::bigint))
SELECT j.tenant, coalesce(j.definition->'target'->>'url', j.definition->'target'->>'broker_url') AS url,
       sum(w.runs)::bigint AS runs, (array_agg(DISTINCT j.name))[1:3] AS names, count(DISTINCT j.job) AS jobs
  FROM waiting w JOIN jobs j USING (job)
 WHERE j.tenant = ANY($1::integer[])
 GROUP BY 1, 2 HAVING sum(w.runs) > 0 ORDER BY runs DESC LIMIT 10000
