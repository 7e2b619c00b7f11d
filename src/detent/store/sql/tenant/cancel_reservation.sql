-- Cancel a reservation. One that was used no longer exists, and its jobs are counted. $1 reservation
WITH gone AS (DELETE FROM job_reservations WHERE reservation = $1::bigint RETURNING tenant, jobs)
UPDATE tenant_jobs t SET jobs = t.jobs - gone.jobs FROM gone WHERE t.tenant = gone.tenant RETURNING t.tenant
