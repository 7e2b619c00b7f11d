-- Runs that wait for a worker, or will within $1, to be offered to workers: the first $2 of each queue and priority,
-- and $3 in total. `pairs` skips through the index as queue/list_ready does, however many runs wait in each pair. Where
-- there are more pairs than fit, those that are read are drawn: the next scan draws others. Runs that wait for a place
-- of a concurrency key are due at infinity, so they are not listed.
WITH RECURSIVE pairs AS (
    (SELECT queue, priority FROM live_runs WHERE owner IS NULL AND lane >= 0
      ORDER BY queue, priority, not_before LIMIT 1)
    UNION ALL
    SELECT next.* FROM pairs CROSS JOIN LATERAL (
        SELECT queue, priority FROM live_runs
         WHERE owner IS NULL AND lane >= 0 AND (queue, priority) > (pairs.queue, pairs.priority)
         ORDER BY queue, priority, not_before LIMIT 1) next)
SELECT r.* FROM (SELECT * FROM pairs ORDER BY random()) AS ranges CROSS JOIN LATERAL (
    SELECT queue, job, lane, scheduled_at, serial, token, revision, priority, not_before FROM live_runs
     WHERE queue = ranges.queue AND priority = ranges.priority AND not_before <= now() + $1::interval
       AND owner IS NULL AND lane >= 0
     ORDER BY not_before LIMIT $2) r
 LIMIT $3
