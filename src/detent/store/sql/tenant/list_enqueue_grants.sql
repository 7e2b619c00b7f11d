-- The roles that may enqueue runs of a tenant with the SQL functions. $1 tenant
SELECT role, granted_at FROM enqueue_grants WHERE tenant = $1::integer ORDER BY role
