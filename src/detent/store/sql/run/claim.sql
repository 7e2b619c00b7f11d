-- Claim runs that are ready. $1 node, $2 incarnation, $3 queue numbers that this worker serves, $4 limit, $5 whether to
-- treat all priorities as equal this time, so that the lowest gets a share too.
-- One short range per queue and priority (the highest is claimed first): neither waiting retries nor lower priorities
-- are read. `pairs` skips through the index from one priority of a queue to the next below it, however many runs wait
-- in each, beginning above the highest, 100. It reads each priority from its end: at its beginning are the entries of
-- runs that were just claimed, which the index keeps for a while. The ranges are sorted, or the planner would read all
-- of one queue's priorities before the next queue; among queues of equal priority the order is random, so that a
-- backlog in one does not starve the others. An evicted node must not claim after its own rescue, hence the fence. Runs
-- in negative lanes wait for another run of their job. An on-demand run (serial from 201326592 on) is returned with its
-- payload, '' if it has none of its own.
WITH RECURSIVE fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
pairs AS (
    SELECT served.queue, 101::smallint AS priority FROM fence, unnest($3::integer[]) AS served (queue)
    UNION ALL
    SELECT pairs.queue, lower.priority FROM pairs CROSS JOIN LATERAL (
        SELECT priority FROM live_runs
         WHERE queue = pairs.queue AND priority < pairs.priority AND owner IS NULL AND lane >= 0
         ORDER BY priority DESC LIMIT 1) lower),
picked AS MATERIALIZED (
    SELECT r.* FROM (
        SELECT * FROM pairs WHERE priority < 101
         ORDER BY CASE WHEN $5::boolean THEN 0 ELSE priority END DESC, random()) AS ranges
    CROSS JOIN LATERAL (
        SELECT job, lane FROM live_runs
         WHERE queue = ranges.queue AND priority = ranges.priority AND not_before <= now() AND owner IS NULL
           AND lane >= 0
         ORDER BY not_before LIMIT $4 FOR UPDATE SKIP LOCKED) r LIMIT $4),
taken AS (                                   -- by key, as in settle
    UPDATE live_runs r SET owner = $1, token = greatest(r.token, $2::bigint << 22) + 1
     WHERE r.job = ANY (ARRAY(SELECT job FROM picked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM picked)) IS TRUE
    RETURNING r.*)
SELECT job, lane, scheduled_at, serial, token, revision, attempt, crashes, once, cancel, queue,
       CASE WHEN serial >= 201326592 THEN coalesce(payload::text, '') END AS payload, key
  FROM taken
 ORDER BY CASE WHEN $5::boolean THEN 0 ELSE priority END DESC, not_before
