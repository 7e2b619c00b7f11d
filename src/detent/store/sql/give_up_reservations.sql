-- Those of processes that died between a reservation and its use. $1 age
WITH gone AS (DELETE FROM job_reservations WHERE made_at < now() - $1::interval RETURNING tenant, jobs),
summed AS (SELECT tenant, sum(jobs)::integer AS jobs FROM gone GROUP BY tenant)
UPDATE tenant_jobs t SET jobs = t.jobs - summed.jobs FROM summed WHERE t.tenant = summed.tenant RETURNING t.tenant, summed.jobs
