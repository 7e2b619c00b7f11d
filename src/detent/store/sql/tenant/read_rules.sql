-- What every process that answers requests has to know of tenants: those that are suspended, and those with a request
-- rate of their own.
SELECT tenant, name, suspended_at IS NOT NULL AS suspended, requests_per_second FROM tenants
 WHERE suspended_at IS NOT NULL OR requests_per_second IS NOT NULL
