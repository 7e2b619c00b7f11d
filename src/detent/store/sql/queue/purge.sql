-- Delete queues that are not used, as schedule/purge; one that has a limit is kept. $1 queues, $2 how long, $3 the time
-- as in history/list_expired
WITH old AS MATERIALIZED (
    SELECT queue FROM queues q
     WHERE queue = ANY ($1::integer[]) AND unused_since < least(now(), $3::timestamptz) - $2::interval
       AND (SELECT held_at IS NULL FROM cluster)
       AND NOT EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant AND l.queue = q.name)
       AND NOT EXISTS (SELECT FROM nodes WHERE NOT evicted AND coalesce(knows, 0) < 12)
     ORDER BY queue FOR UPDATE SKIP LOCKED)
DELETE FROM queues q USING old WHERE q.queue = old.queue RETURNING q.queue
