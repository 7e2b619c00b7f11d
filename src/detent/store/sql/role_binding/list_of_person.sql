-- The roles of a person, in all tenants. $1 names of the person, $2 groups
SELECT b.tenant, t.name AS tenant_name, b.role, b.queue, b.tag FROM role_bindings b JOIN tenants t USING (tenant)
 WHERE (b.subject_kind = 'user' AND b.subject = ANY ($1::text[]))
    OR (b.subject_kind = 'group' AND b.subject = ANY ($2::text[]))
 ORDER BY b.tenant, b.binding
