-- Cancel reservations of processes that died before using them, and capacity reserved ahead that was not used. $1 age
WITH old AS MATERIALIZED (
    SELECT reservation FROM job_reservations WHERE made_at < now() - $1::interval ORDER BY reservation
           FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM job_reservations r USING old WHERE r.reservation = old.reservation
    RETURNING r.tenant, r.jobs, r.spare),
summed AS (SELECT tenant, sum(jobs)::integer AS jobs, coalesce(sum(jobs) FILTER (WHERE NOT spare), 0)::integer AS lost
             FROM gone GROUP BY tenant)
UPDATE tenant_jobs t SET jobs = t.jobs - summed.jobs FROM summed WHERE t.tenant = summed.tenant RETURNING t.tenant,
       summed.lost
