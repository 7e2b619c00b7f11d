-- Add this node to the cluster. $1 node, $2 time to live, $3 host, $4 pid, $5 roles, $6 version, $7 tzdata,
-- $8 the last migration that its code knows, $9 where its API listens,
-- $10 whether it was draining before it joined again, $11 the queues that it serves, $12 what it can call beyond HTTP
INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, knows, address, draining, queues,
    capabilities)
VALUES ($1, $2, now() + $2::interval, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
