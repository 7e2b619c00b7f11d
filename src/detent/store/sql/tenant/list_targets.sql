-- $1 tenant
SELECT pattern FROM tenant_targets WHERE tenant = $1::integer ORDER BY created_at, pattern
