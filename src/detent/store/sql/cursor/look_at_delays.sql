-- Due cursors of jobs whose tick counts from the end of the run before: move those that are not there yet. $1 node;
-- arrays sorted by job: $2 job, $3 tick and $4 generation as read, $5 delay, $6 the time to the next look while a run
-- is unfinished, $7 the end of the schedule or NULL. Returns the moved ones with their next tick; NULL: a tick after
-- the end of the schedule, so the job has ended. One snapshot: a run is either unfinished or in the history. Statuses
-- 1, 2 and 3 are succeeded, dead and cancelled. Runs since the last tick count, also those started by hand. The clock
-- of a worker may be ahead: an end is not later than now. Ticks have milliseconds.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::interval[], $6::interval[],
                         $7::timestamptz[])
        AS t (job, tick, generation, delay, look, ends_at)),
looked AS MATERIALIZED (                     -- LIMIT: an EXISTS may be planned as a hash of all runs
    SELECT batch.*, CASE WHEN (SELECT true FROM live_runs r WHERE r.job = batch.job LIMIT 1)
           THEN date_trunc('milliseconds', greatest(now(), batch.tick)) + batch.look
           ELSE (SELECT date_trunc('milliseconds', max(least(h.finished_at, now())) + interval '999 microseconds')
                        + batch.delay
                   FROM run_history h
                  WHERE h.job = batch.job AND h.scheduled_at >= c.last_tick AND h.status IN (1, 2, 3)) END AS due
      FROM fence, batch JOIN cursors c USING (job))
UPDATE cursors c
   SET next_tick = CASE WHEN looked.due > looked.ends_at THEN NULL ELSE looked.due END,
       fire_at = CASE WHEN looked.due > looked.ends_at THEN NULL ELSE looked.due END,
       ended = coalesce(looked.due > looked.ends_at, false)
  FROM looked
 WHERE c.job = looked.job AND c.next_tick = looked.tick AND c.generation = looked.generation
   AND looked.due > looked.tick AND (SELECT held_at IS NULL FROM cluster)  -- held: the clock may be wrong
RETURNING c.job, c.next_tick
