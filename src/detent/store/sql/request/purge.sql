-- Delete stored answers that have expired. $1 how long answers are kept, $2 limit, $3 the node's
-- time, see history/list_expired
WITH old AS MATERIALIZED (
    SELECT tenant, key FROM requests WHERE created_at < least(now(), $3::timestamptz) - $1::interval
       AND (SELECT held_at IS NULL FROM cluster) ORDER BY created_at LIMIT $2::integer FOR UPDATE SKIP LOCKED)
DELETE FROM requests r USING old WHERE r.tenant = old.tenant AND r.key = old.key RETURNING r.key
