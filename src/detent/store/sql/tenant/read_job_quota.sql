-- Why there is no capacity. $1 tenant
SELECT t.name, t.max_jobs, t.max_storage_bytes, t.storage_bytes,
       c.jobs - coalesce((SELECT sum(r.jobs) FROM job_reservations r WHERE r.tenant = t.tenant
    AND r.spare), 0)::integer AS jobs
  FROM tenants t JOIN tenant_jobs c USING (tenant) WHERE t.tenant = $1::integer
