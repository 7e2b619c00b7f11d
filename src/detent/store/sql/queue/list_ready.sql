-- The queues and priorities that have runs ready to start. $1 queue numbers this worker serves. Skips through the index
-- from one pair to the next, however many runs wait in each; the first of a pair is the one that may start soonest.
WITH RECURSIVE pairs AS (
    (SELECT queue, priority, not_before FROM live_runs WHERE owner IS NULL AND lane >= 0
      ORDER BY queue, priority, not_before LIMIT 1)
    UNION ALL
    SELECT next.* FROM pairs CROSS JOIN LATERAL (
        SELECT queue, priority, not_before FROM live_runs
         WHERE owner IS NULL AND lane >= 0 AND (queue, priority) > (pairs.queue, pairs.priority)
         ORDER BY queue, priority, not_before LIMIT 1) next)
SELECT queue, priority FROM pairs WHERE not_before <= now() AND queue = ANY ($1::integer[])
