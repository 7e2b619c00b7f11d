-- $1 tenant, $2 patterns
DELETE FROM tenant_targets WHERE tenant = $1::integer AND pattern = ANY ($2::text[])
