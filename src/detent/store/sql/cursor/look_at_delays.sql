-- Due cursors of jobs whose tick counts from the end of the previous run: move those whose tick is too early. $1 node;
-- arrays sorted by job: $2 job, $3 tick and $4 generation as read, $5 delay, $6 the time to the next look while a run
-- is unfinished, $7 the end of the schedule or NULL. Returns moved cursors with their next tick (NULL: that is after
-- the end of the schedule, so the job has ended), and as 'busy' cursors that are locked or not as they were read: they
-- are neither waited for nor fired. All other ticks may fire. One snapshot: a run is either unfinished or in the
-- history. Statuses 1, 2 and 3 are succeeded, dead and cancelled. Runs since the last tick count, also those started by
-- hand. The clock of a worker may be ahead: an end is not later than now. Ticks have milliseconds.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::interval[], $6::interval[],
                         $7::timestamptz[])
        AS t (job, tick, generation, delay, look, ends_at)),
locked AS MATERIALIZED (
    SELECT batch.*, c.last_tick
      FROM fence, batch CROSS JOIN LATERAL (
        SELECT last_tick FROM cursors
         WHERE job = batch.job AND next_tick = batch.tick AND generation = batch.generation
           FOR NO KEY UPDATE SKIP LOCKED) c
     WHERE (SELECT held_at IS NULL FROM cluster)),  -- held: the clock may be wrong
looked AS MATERIALIZED (                     -- LIMIT: an EXISTS may be planned as a hash of all runs
    SELECT locked.*, CASE WHEN (SELECT true FROM live_runs r WHERE r.job = locked.job LIMIT 1)
           THEN date_trunc('milliseconds', greatest(now(), locked.tick)) + locked.look
           ELSE (SELECT date_trunc('milliseconds', max(least(h.finished_at, now())) + interval '999 microseconds')
                        + locked.delay
                   FROM run_history h
                  WHERE h.job = locked.job AND h.scheduled_at >= locked.last_tick AND h.status IN (1, 2, 3)) END AS due
      FROM locked),
moved AS (
    UPDATE cursors c
       SET next_tick = CASE WHEN looked.due > looked.ends_at THEN NULL ELSE looked.due END,
           fire_at = CASE WHEN looked.due > looked.ends_at THEN NULL ELSE looked.due END,
           ended = coalesce(looked.due > looked.ends_at, false)
      FROM looked
     WHERE c.job = looked.job AND looked.due > looked.tick
    RETURNING c.job, c.next_tick)
SELECT job, next_tick, false AS busy FROM moved
UNION ALL SELECT job, NULL, true FROM batch WHERE job NOT IN (SELECT job FROM locked)
