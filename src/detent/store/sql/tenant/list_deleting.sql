-- Tenants whose deletion was requested at least this long ago, the oldest request first. $1 how long
SELECT tenant FROM tenants WHERE deleting_at <= now() - $1::interval ORDER BY deleting_at, tenant
