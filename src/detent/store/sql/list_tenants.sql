-- In the order of their creation. $1 after this number, $2 limit, $3 name or NULL for all
SELECT tenant, name, created_at FROM tenants
 WHERE tenant > $1::integer AND (name = $3::text OR $3::text IS NULL) ORDER BY tenant LIMIT $2::integer
