-- How many jobs a tenant has and has reserved, both from one snapshot, together with the stored count. $1 tenant
SELECT c.jobs AS counted, ((SELECT count(*) FROM jobs j WHERE j.tenant = c.tenant
    AND j.status IN ('active', 'paused', 'completed'))
     + (SELECT coalesce(sum(r.jobs), 0) FROM job_reservations r WHERE r.tenant = c.tenant))::integer AS found
  FROM tenant_jobs c WHERE c.tenant = $1::integer
