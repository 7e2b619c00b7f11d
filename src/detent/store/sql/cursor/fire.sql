-- The fire: fence, compare-and-set of a batch of cursors, and their runs, in one statement.
-- $1 node, $2 incarnation, $3 hand off to (node or NULL), $4 the jobs, sorted. Of what they mostly agree in, one value
-- for all, or NULL and an array: $5 and $6 tick, $7 and $8 generation, $9 and $10 next tick (NULL: none follows).
-- $11 array of fire_at; NULL: no jitter in the whole batch. Sending an array costs the node more than anything else it
-- does for this statement. width_bucket finds the place of a job in the arrays, as in run/settle.
-- Returns the exceptions only; an empty answer means that every tick became a run in lane 0.
-- A token is the incarnation shifted by 22 bits, and a counter in those 22 bits. Status 4 is skipped.
WITH fence AS MATERIALIZED (                 -- waits for an eviction of this node, or makes the eviction wait
    SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
moved AS (
    UPDATE cursors c
       SET next_tick = coalesce($9::timestamptz, ($10::timestamptz[])[width_bucket(c.job, $4::bigint[])]),
           fire_at = coalesce(($11::timestamptz[])[width_bucket(c.job, $4::bigint[])], $9::timestamptz,
                              ($10::timestamptz[])[width_bucket(c.job, $4::bigint[])]),
           last_tick = c.next_tick,
           ended = coalesce($9::timestamptz, ($10::timestamptz[])[width_bucket(c.job, $4::bigint[])]) IS NULL
     WHERE c.job = ANY ($4::bigint[])
       AND c.next_tick = coalesce($5::timestamptz, ($6::timestamptz[])[width_bucket(c.job, $4::bigint[])])
       AND c.generation = coalesce($7::integer, ($8::integer[])[width_bucket(c.job, $4::bigint[])])
       AND EXISTS (SELECT FROM fence)
       -- Never early; now() is when the statement began, so waiting is safe. coalesce keeps the planner from the index
       -- on fire_at: with statistics from a time when nothing was due, that index seems the quickest way (the loop fell
       -- from 38,000 runs/s to 4,000).
       AND coalesce(c.fire_at, 'infinity') <= now()
       -- fire_careful takes jobs with max_runs, with ticks to skip, with runs in more lanes than they have now, and
       -- with concurrency keys. One condition for three columns: before the first statistics, the planner expects one
       -- row in 200 of each, and with three of them preferred a sequential scan (the first herd fell to 5,000 runs/s).
       AND num_nonnulls(c.runs_left, c.key_limit, c.key_rate) = 0 AND NOT c.skips AND NOT c.crowded
       AND (SELECT held_at IS NULL FROM cluster) AND c.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
    RETURNING c.job, c.last_tick AS tick, c.queue, c.revision, c.lanes, c.priority, c.once),
occupied AS MATERIALIZED (SELECT job FROM live_runs WHERE job = ANY ($4::bigint[])),
first_runs AS (
    -- No run of the job is visible, as of nearly all jobs, so lane 0 is free. ON CONFLICT would write a second record
    -- for every row (50 to 66 of 830 B of WAL for each run). If another run takes the lane meanwhile, the key refuses
    -- the whole batch, which is then sent as cursor/fire_careful. Keys are inserted in two passes, each in the order of
    -- jobs; other statements insert in one. If the two wait for each other, the short lock timeout of a fire ends it.
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, $3::bigint, tick, queue, revision, 0, priority, once
      FROM moved WHERE job NOT IN (SELECT job FROM occupied)
    RETURNING job, lane),
further_runs AS (
    -- The lane by overlap policy. SKIP (lanes = 1): lane 0, which is free if the visible run has another lane or ends
    -- meanwhile. QUEUE and REPLACE (lanes < 0): the negative lane in which runs wait. ALLOW: the lowest free lane;
    -- triggers take the highest, so that the two compete only for the last.
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN lane >= 0 THEN $3::bigint END, tick, queue, revision, lane,
           priority, once
      FROM (SELECT moved.*, CASE WHEN lanes = 1 THEN 0::smallint WHEN lanes < 0 THEN lanes
                ELSE (SELECT g::smallint FROM generate_series(0, lanes - 1) g
                 WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = moved.job AND r.lane = g)
                 ORDER BY g LIMIT 1) END AS lane
              FROM moved WHERE (job IN (SELECT job FROM occupied)) IS TRUE) placed
     WHERE lane IS NOT NULL
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane),
made AS NOT MATERIALIZED (SELECT * FROM first_runs UNION ALL SELECT * FROM further_runs),
counts AS MATERIALIZED (                     -- as a rule all three are equal, and nothing below is read
    SELECT cardinality($4::bigint[]) AS sent, (SELECT count(*) FROM moved) AS moved,
           (SELECT count(*) FROM first_runs) + (SELECT count(*) FROM further_runs) AS made),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, tick, now(), 0, revision, 4, 'overlap' FROM moved
     WHERE (SELECT made < moved FROM counts) AND job NOT IN (SELECT job FROM made))
-- NOT IN and IS TRUE throughout: always a hashed subplan, where a join of CTEs, each estimated at one row, would be
-- a thousand times a thousand comparisons.
SELECT job, lane, NULL AS why FROM further_runs WHERE lane <> 0
UNION ALL SELECT job, NULL, 'overlap' FROM moved
           WHERE (SELECT made < moved FROM counts) AND job NOT IN (SELECT job FROM made)
UNION ALL SELECT job, NULL, 'refused' FROM unnest($4::bigint[]) AS job
           WHERE (SELECT moved < sent FROM counts) AND job NOT IN (SELECT job FROM moved)
