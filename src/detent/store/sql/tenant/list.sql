-- Tenants in the order of their creation, with their quotas and usage. $1 after this number, $2 limit, $3 name or NULL
-- for all
SELECT t.tenant, t.name, t.created_at, t.max_jobs, t.max_payload_bytes, l.max_concurrent,
       c.jobs - coalesce((SELECT sum(r.jobs) FROM job_reservations r WHERE r.tenant = t.tenant AND r.spare),
       0)::integer AS jobs, l.rate_per_second AS max_runs_per_second, t.weight, t.signing, t.dead_letter_topic::text,
       t.max_storage_bytes, t.storage_bytes, t.requests_per_second, t.suspended_at, t.suspended_by, t.suspended_reason,
       t.deleting_at, t.deleting_by, t.deleted_rows, ARRAY(
    SELECT p.pattern FROM tenant_targets p WHERE p.tenant = t.tenant ORDER BY p.created_at, p.pattern) AS allow_targets
  FROM tenants t JOIN tenant_jobs c USING (tenant) LEFT JOIN limits l ON l.tenant = t.tenant AND l.queue IS NULL
 WHERE t.tenant > $1::integer AND (t.name = $3::text OR $3::text IS NULL) ORDER BY t.tenant LIMIT $2::integer
