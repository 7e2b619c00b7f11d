-- $1 tenant
UPDATE tenants SET suspended_at = NULL, suspended_by = NULL, suspended_reason = NULL WHERE tenant = $1::integer
