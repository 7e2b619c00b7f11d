-- $1 queues to mark as unused from now on, $2 queues that are used again
WITH changed AS MATERIALIZED (
    SELECT queue FROM queues
     WHERE queue = ANY ($1::integer[]) AND unused_since IS NULL OR queue = ANY ($2::integer[])
       AND unused_since IS NOT NULL
     ORDER BY queue FOR NO KEY UPDATE SKIP LOCKED)
UPDATE queues q SET unused_since = CASE WHEN q.queue = ANY ($1::integer[]) THEN now() END FROM changed
 WHERE q.queue = changed.queue
