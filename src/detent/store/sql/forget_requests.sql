-- Answers that were kept long enough. $1 how long, $2 limit
WITH old AS MATERIALIZED (
    SELECT tenant, key FROM requests WHERE created_at < now() - $1::interval ORDER BY created_at LIMIT $2::integer
       FOR UPDATE SKIP LOCKED)
DELETE FROM requests r USING old WHERE r.tenant = old.tenant AND r.key = old.key RETURNING r.key
