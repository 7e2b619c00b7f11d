-- $1 tenant
SELECT max_payload_bytes FROM tenants WHERE tenant = $1::integer
