-- $1 node, $2 time to live, $3 host, $4 pid, $5 roles, $6 version, $7 tzdata
INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata)
VALUES ($1, $2, now() + $2::interval, $3, $4, $5, $6, $7)
