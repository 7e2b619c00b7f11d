-- Create a secret, or make room for its next version; locks its row. $1 tenant, $2 name, $3 who
INSERT INTO secrets (tenant, name, changed_by) VALUES ($1, $2, $3)
ON CONFLICT (tenant, name) DO UPDATE SET version = secrets.version + 1, changed_at = now(), changed_by = $3
RETURNING version
