-- No row: the name is taken. $1 name
WITH made AS (INSERT INTO tenants (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING RETURNING tenant)
INSERT INTO tenant_jobs (tenant) SELECT tenant FROM made RETURNING tenant
