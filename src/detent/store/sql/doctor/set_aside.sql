-- Jobs of all tenants whose tick cannot be fired. $1 job or NULL, $2 limit
SELECT j.name, s.kind, s.why, s.tick, s.since, count(*) OVER () AS jobs
  FROM set_aside_jobs s JOIN jobs j USING (job) WHERE $1::bigint IS NULL OR s.job = $1::bigint ORDER BY s.since, s.job
 LIMIT $2::integer
