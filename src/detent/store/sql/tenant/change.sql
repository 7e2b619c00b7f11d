-- $1 tenant, $2 max_jobs, $3 max_payload_bytes, $4 weight, $5 max_storage_bytes, $6 requests_per_second. Storage is
-- measured only while it has a limit, so an old figure goes with the limit.
UPDATE tenants SET max_jobs = $2::integer, max_payload_bytes = $3::integer, weight = $4::smallint,
       max_storage_bytes = $5::bigint, storage_bytes = CASE WHEN $5::bigint IS NOT NULL THEN storage_bytes END,
       storage_measured_at = CASE WHEN $5::bigint IS NOT NULL THEN storage_measured_at END,
       requests_per_second = $6::double precision
 WHERE tenant = $1::integer
