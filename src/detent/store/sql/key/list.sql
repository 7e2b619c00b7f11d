-- Keys of a tenant in the order of their creation, without their digests. $1 tenant, $2 after this number, $3 limit,
-- $4 id or NULL for all
SELECT k.number, k.id, t.name AS tenant, k.scope, k.name, k.created_at, k.created_by, k.expires_at, k.revoked_at,
       k.last_used_at, CASE WHEN k.revoked_at IS NOT NULL THEN 'revoked' WHEN k.expires_at <= now() THEN 'expired'
                            ELSE 'active' END AS status
  FROM api_keys k JOIN tenants t USING (tenant)
 WHERE k.tenant = $1::integer AND k.number > $2::bigint AND (k.id = $4::text OR $4::text IS NULL)
 ORDER BY k.number LIMIT $3::integer
