-- As cursor/fire, for jobs with max_runs, with ticks to skip, with concurrency keys or, since an edit, with runs in
-- more lanes than they have, and after a lock timeout or where the key of a lane refused a batch of cursor/fire: it
-- locks first and skips locked cursors. For the third kind it counts the runs, not the lanes. runs_left decreases
-- only for ticks that became runs, which a plain UPDATE cannot know; the last run completes the job. Parameters and
-- answer as in cursor/fire, and $9: do not skip ticks for which no lane is free but leave them due ('refused'), for
-- ticks that are late for a reason outside their job. Status 4 is skipped, lane -1 is where the runs of QUEUE wait.
-- A run with a concurrency key is nobody's until run/admit gives it a place of the key; the answer says 'key'.
WITH fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (
    SELECT * FROM unnest($4::bigint[], $5::timestamptz[], $6::integer[], $7::timestamptz[], $8::timestamptz[])
        AS t (job, tick, generation, next_tick, fire_at)),
locked AS MATERIALIZED (
    SELECT c.*, batch.tick, batch.next_tick, batch.fire_at,
           c.skips AND EXISTS (SELECT FROM skips s WHERE s.job = batch.job AND s.tick = batch.tick) AS unwanted,
           CASE WHEN c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL THEN tick_key(c.job) END AS key
      FROM fence, batch CROSS JOIN LATERAL (
        SELECT job, queue, revision, lanes, priority, once, runs_left, skips, crowded, key_limit, key_rate FROM cursors
         WHERE job = batch.job AND next_tick = batch.tick AND generation = batch.generation AND fire_at <= now()
           AND queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
           AND NOT ($9::boolean AND CASE lanes
                    WHEN -1 THEN EXISTS (SELECT FROM live_runs r WHERE r.job = batch.job AND r.lane = -1)
                    ELSE (SELECT count(*) FROM live_runs r WHERE r.job = batch.job AND (r.lane >= 0 OR lanes < 0))
                         >= greatest(lanes, 1) END)
           FOR NO KEY UPDATE SKIP LOCKED) c
     WHERE (SELECT held_at IS NULL FROM cluster)),
placed AS MATERIALIZED (
    SELECT locked.*, CASE WHEN unwanted THEN NULL
        WHEN crowded AND lanes <= (SELECT count(*) FROM live_runs r WHERE r.job = locked.job AND r.lane >= 0)
             AND lanes > 0 THEN NULL
        WHEN lanes = 1 THEN 0::smallint
        -- OFFSET 0 keeps this a probe for each job: a plan that was made while the queue was empty read all live runs.
        WHEN lanes < 0
        THEN CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = locked.job OFFSET 0) THEN lanes
                  ELSE 0::smallint END
        ELSE (SELECT g::smallint FROM generate_series(0, locked.lanes - 1) g
         WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = locked.job AND r.lane = g)
         ORDER BY g LIMIT 1) END AS lane FROM locked),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once, key)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN lane >= 0 AND key IS NULL THEN $3::bigint END,
           CASE WHEN key IS NULL THEN tick ELSE 'infinity' END, queue, revision, lane, priority, once, key
      FROM placed WHERE lane IS NOT NULL
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, key),
queued AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority, once, key)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN key IS NULL THEN tick ELSE 'infinity' END, queue, revision, lanes,
           priority, once, key
      FROM placed WHERE lanes < 0 AND lane = 0 AND job NOT IN (SELECT job FROM inserted)
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, key),
made AS (SELECT * FROM inserted UNION ALL SELECT * FROM queued),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, tick, now(), 0, revision, 4, CASE WHEN unwanted THEN 'by request' ELSE 'overlap' END
      FROM placed WHERE job NOT IN (SELECT job FROM made)),
moved AS (
    UPDATE cursors c SET last_tick = d.tick,
           skips = d.skips AND EXISTS (SELECT FROM skips s WHERE s.job = d.job AND s.tick > d.tick),
           crowded = d.crowded
                     AND EXISTS (SELECT FROM live_runs r WHERE r.job = d.job AND r.lane >= greatest(d.lanes, 1)),
           runs_left = d.left_over, ended = d.left_over IS NOT DISTINCT FROM 0 OR d.next_tick IS NULL,
           next_tick = CASE WHEN d.left_over = 0 THEN NULL ELSE d.next_tick END,
           fire_at = CASE WHEN d.left_over = 0 THEN NULL ELSE coalesce(d.fire_at, d.next_tick) END
      FROM (SELECT locked.*, locked.runs_left - (m.job IS NOT NULL)::integer AS left_over
              FROM locked LEFT JOIN made m USING (job)) d
     WHERE c.job = d.job)
SELECT job, lane, CASE WHEN key IS NOT NULL THEN 'key' END AS why FROM made WHERE lane <> 0 OR key IS NOT NULL
UNION ALL SELECT job, NULL, CASE WHEN unwanted THEN 'by request' ELSE 'overlap' END FROM locked
           WHERE job NOT IN (SELECT job FROM made)
UNION ALL SELECT job, NULL, 'refused' FROM batch WHERE job NOT IN (SELECT job FROM locked)
