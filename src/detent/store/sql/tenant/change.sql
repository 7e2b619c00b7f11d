-- $1 tenant, $2 max_jobs, $3 max_payload_bytes, $4 weight
UPDATE tenants SET max_jobs = $2::integer, max_payload_bytes = $3::integer, weight = $4::smallint
 WHERE tenant = $1::integer
