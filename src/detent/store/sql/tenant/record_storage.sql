-- $1 tenant, $2 bytes
UPDATE tenants SET storage_bytes = $2::bigint, storage_measured_at = now()
 WHERE tenant = $1::integer AND max_storage_bytes IS NOT NULL
