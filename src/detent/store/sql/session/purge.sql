-- Delete expired browser sessions. $1 limit, $2 the node's time, see history/list_expired
WITH old AS MATERIALIZED (
    SELECT digest FROM sessions WHERE expires_at <= least(now(), $2::timestamptz) ORDER BY expires_at LIMIT $1::integer
           FOR UPDATE SKIP LOCKED)
DELETE FROM sessions s USING old WHERE s.digest = old.digest RETURNING s.digest
