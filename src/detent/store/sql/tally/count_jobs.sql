-- Count the jobs of all tenants by status, for views of tenants with many jobs.
WITH mark AS (UPDATE tally SET counted_at = now()),
counted AS (SELECT tenant, status, count(*) AS jobs FROM jobs WHERE status <> 'deleted' GROUP BY tenant, status),
gone AS (
    DELETE FROM job_counts c WHERE NOT EXISTS (SELECT FROM counted n WHERE n.tenant = c.tenant AND n.status = c.status))
INSERT INTO job_counts (tenant, status, jobs) SELECT tenant, status, jobs FROM counted
ON CONFLICT (tenant, status) DO UPDATE SET jobs = excluded.jobs
