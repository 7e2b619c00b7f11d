-- How many jobs a tenant has in each status: counted now if they are few, otherwise the last stored count. $1 tenant,
-- $2 how many are few
SELECT s.status, CASE WHEN t.jobs <= $2::integer
           THEN (SELECT count(*) FROM jobs j WHERE j.tenant = $1::integer AND j.status = s.status)
           ELSE coalesce(
               (SELECT c.jobs FROM job_counts c WHERE c.tenant = $1::integer AND c.status = s.status), 0) END AS jobs,
       t.jobs > $2::integer AS estimated, t.jobs AS total
  FROM (SELECT c.jobs - coalesce(
                   (SELECT sum(r.jobs) FROM job_reservations r WHERE r.tenant = c.tenant AND r.spare),
                   0)::integer AS jobs
          FROM tenant_jobs c WHERE c.tenant = $1::integer) AS t,
       unnest(ARRAY['active', 'paused', 'completed']) AS s (status)
