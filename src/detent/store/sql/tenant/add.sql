-- No row: the name is taken. $1 name
INSERT INTO tenants (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING RETURNING tenant
