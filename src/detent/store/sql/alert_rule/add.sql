-- Create a rule; no row: the name is taken. $1 tenant, $2 name, $3 definition, $4 events that are asked for, $5 who
INSERT INTO alert_rules (tenant, name, definition, events, created_by, changed_by)
VALUES ($1::integer, $2, $3::jsonb, $4::text[], $5, $5)
ON CONFLICT (tenant, name) DO NOTHING RETURNING rule
