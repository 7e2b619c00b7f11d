-- The number of a worker that pulls; a new worker is inserted. $1 tenant, $2 name
INSERT INTO pull_workers (tenant, name) VALUES ($1, $2)
ON CONFLICT (tenant, name) DO UPDATE SET seen_at = now() RETURNING worker
