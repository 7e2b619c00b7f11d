-- Reclaim capacity that was reserved ahead when the quota is used up. $1 tenant
WITH ahead AS MATERIALIZED (
    SELECT reservation FROM job_reservations WHERE tenant = $1::integer AND spare ORDER BY reservation FOR UPDATE),
gone AS (DELETE FROM job_reservations r USING ahead WHERE r.reservation = ahead.reservation RETURNING r.jobs)
UPDATE tenant_jobs t SET jobs = t.jobs - (SELECT sum(jobs)::integer FROM gone)
 WHERE t.tenant = $1::integer AND EXISTS (SELECT FROM gone) RETURNING t.tenant
