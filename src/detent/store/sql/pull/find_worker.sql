-- The number of a worker that pulls, made if it is new. $1 tenant, $2 name
INSERT INTO pull_workers (tenant, name) VALUES ($1, $2)
ON CONFLICT (tenant, name) DO UPDATE SET seen_at = now() RETURNING worker
