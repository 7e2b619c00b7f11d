-- Jobs whose tick cannot be fired, in the order in which they were set aside. $1 tenant, or NULL for all, $2 limit
SELECT j.id, j.name, s.kind, s.why, s.tick, s.since
  FROM set_aside_jobs s JOIN jobs j USING (job)
 WHERE ($1::integer IS NULL OR j.tenant = $1::integer) AND j.status <> 'deleted'
 ORDER BY s.since, s.job LIMIT $2::integer
