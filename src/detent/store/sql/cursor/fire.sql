-- The fire: fence, compare-and-set of a batch of cursors, and their runs, in one statement.
-- $1 node, $2 incarnation, $3 hand off to (node or NULL); arrays sorted by job: $4 job, $5 tick, $6 generation,
-- $7 next tick, $8 its fire_at (a NULL array: no jitter anywhere in the batch). $5, $6 and $7 may have a single element that holds
-- for all: jobs that are due together mostly agree, and an array costs the node more than all else that it does for the statement.
-- Returns the exceptions only; an empty answer means every tick became a run in lane 0.
WITH me AS MATERIALIZED (                    -- the fence: waits for an eviction, or makes it wait for us
    SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
v AS MATERIALIZED (
    SELECT job, CASE WHEN cardinality($5::timestamptz[]) = 1 THEN ($5::timestamptz[])[1] ELSE tick END AS tick,
           CASE WHEN cardinality($6::integer[]) = 1 THEN ($6::integer[])[1] ELSE generation END AS generation,
           CASE WHEN cardinality($7::timestamptz[]) = 1 THEN ($7::timestamptz[])[1] ELSE next_tick END AS next_tick, fire_at
      FROM unnest($4::bigint[], $5::timestamptz[], $6::integer[], $7::timestamptz[], $8::timestamptz[])
        AS t (job, tick, generation, next_tick, fire_at)),
u AS (
    UPDATE cursors c
       SET next_tick = v.next_tick, fire_at = coalesce(v.fire_at, v.next_tick), last_tick = v.tick,
           ended = v.next_tick IS NULL
      FROM v, me
     WHERE c.job = v.job AND c.next_tick = v.tick AND c.generation = v.generation
       -- Never early; now() is when the statement began, so waiting is safe. coalesce keeps the index on fire_at out of this:
       -- to a planner that last looked when nothing was due it seems the quickest way (the loop fell from 38,000 runs/s to 4,000).
       AND coalesce(c.fire_at, 'infinity') <= now()
       AND c.runs_left IS NULL AND NOT c.skips AND NOT c.crowded      -- bounded jobs go through fire_careful, as do those with
                                             -- ticks to skip, and those with runs in more lanes than they have now
       AND (SELECT held_at IS NULL FROM cluster)
    RETURNING c.job, v.tick, c.queue, c.revision, c.lanes, c.priority, c.once),
placed AS MATERIALIZED (
    SELECT u.*, CASE WHEN lanes = 1 THEN 0::smallint                          -- SKIP: 0; QUEUE and REPLACE: 0 when they are
        WHEN lanes < 0 THEN CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = u.job) THEN lanes ELSE 0::smallint END
        ELSE (SELECT g::smallint FROM generate_series(0, u.lanes - 1) g      -- alone, else the lane to wait in; ALLOW: the
         WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = u.job AND r.lane = g)  -- lowest free lane, while triggers
         ORDER BY g LIMIT 1) END AS lane FROM u),                            -- take the highest: they meet only in the last
i AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN lane >= 0 THEN $3::bigint END, tick, queue, revision, lane, priority, once
      FROM placed WHERE lane IS NOT NULL
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane),
q AS (                                       -- no longer alone: wait after all
    INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, tick, queue, revision, lanes, priority, once
      FROM placed WHERE lanes < 0 AND lane = 0 AND job NOT IN (SELECT job FROM i)
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane),
made AS (SELECT * FROM i UNION ALL SELECT * FROM q),
n AS MATERIALIZED (                          -- as a rule all are equal, and nobody has to be looked for
    SELECT (SELECT count(*) FROM v) AS sent, (SELECT count(*) FROM u) AS moved, (SELECT count(*) FROM made) AS made),
s AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, tick, now(), 0, revision, 4, 'overlap' FROM placed
     WHERE (SELECT made < moved FROM n) AND job NOT IN (SELECT job FROM made))
-- IN (sub-select) throughout: always a hashed subplan, where a join of CTEs, each estimated at one row, would be
-- a thousand times a thousand comparisons.
SELECT job, lane, NULL AS why FROM made WHERE lane <> 0
UNION ALL SELECT job, NULL, 'overlap' FROM u WHERE (SELECT made < moved FROM n) AND job NOT IN (SELECT job FROM made)
UNION ALL SELECT job, NULL, 'refused' FROM v WHERE (SELECT moved < sent FROM n) AND job NOT IN (SELECT job FROM u)
