-- Tenants whose storage is limited, and therefore measured.
SELECT tenant FROM tenants WHERE max_storage_bytes IS NOT NULL AND deleting_at IS NULL ORDER BY tenant
