-- How many jobs a tenant has and is about to have, as one snapshot sees both, beside what is counted. $1 tenant
SELECT c.jobs AS counted, ((SELECT count(*) FROM jobs j WHERE j.tenant = c.tenant
    AND j.status IN ('active', 'paused', 'completed'))
     + (SELECT coalesce(sum(r.jobs), 0) FROM job_reservations r WHERE r.tenant = c.tenant))::integer AS found
  FROM tenant_jobs c WHERE c.tenant = $1::integer
