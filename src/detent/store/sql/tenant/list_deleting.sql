-- Tenants that are being deleted, the oldest deletion first.
SELECT tenant FROM tenants WHERE deleting_at IS NOT NULL ORDER BY deleting_at, tenant
