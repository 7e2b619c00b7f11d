-- Bindings of a tenant in the order of their creation. $1 tenant, $2 after this number, $3 limit, $4 number or NULL for
-- all
SELECT b.binding AS id, t.name AS tenant, b.subject_kind, b.subject, b.role, b.queue, b.tag, b.created_at, b.created_by
  FROM role_bindings b JOIN tenants t USING (tenant)
 WHERE b.tenant = $1::integer AND b.binding > $2::bigint AND (b.binding = $4::bigint OR $4::bigint IS NULL)
 ORDER BY b.binding LIMIT $3::integer
