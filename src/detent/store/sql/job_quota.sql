-- Why there is no room. $1 tenant
SELECT t.name, t.max_jobs, c.jobs FROM tenants t JOIN tenant_jobs c USING (tenant) WHERE t.tenant = $1::integer
