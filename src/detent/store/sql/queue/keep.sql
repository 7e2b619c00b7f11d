-- Remove the mark of unused queues that are used again, as schedule/keep. $1 queues
WITH locked AS MATERIALIZED (
    SELECT queue FROM queues WHERE queue = ANY ($1::integer[]) AND unused_since IS NOT NULL ORDER BY queue
           FOR NO KEY UPDATE)
UPDATE queues q SET unused_since = NULL FROM locked WHERE q.queue = locked.queue RETURNING q.queue, q.name, q.needs
