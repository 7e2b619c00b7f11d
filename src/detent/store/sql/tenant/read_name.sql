-- $1 tenant
SELECT name FROM tenants WHERE tenant = $1::integer
