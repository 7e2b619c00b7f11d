-- Release missed or backfilled ticks, one of each range, after catch_up/lock_jobs. $1 node, $2 incarnation, $3 the
-- serial where manual runs begin; arrays, no job twice: $4 range, $5 its expected next tick, $6 the job's generation,
-- $7 the tick after (NULL: this is the last). Live ticks come first: nothing is released while one of the job is due,
-- or while runs of its queue have waited for a second; if a job has several lanes, one is left to live ticks, and the
-- run waits one priority below its job's. While the lane is occupied the tick is not released. A tick that an operator
-- skipped is left out. So are, in a backfill, ticks that ran, unless they are to be processed again; ticks in the
-- ledger keep their row, and the run gets the next serial of its tick. Status 4 is skipped. A run with a concurrency
-- key then waits for run/admit. Returns each range with the result: released, left out, or what it waits for.
WITH RECURSIVE fence AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
batch AS MATERIALIZED (
    SELECT * FROM unnest($4::bigint[], $5::timestamptz[], $6::integer[], $7::timestamptz[])
        AS t (catchup, tick, generation, following)),
candidates AS MATERIALIZED (
    SELECT batch.catchup, batch.tick, batch.following, r.job, r.kind, r.reprocess, r.since, r.until, r.concurrent,
           c.queue, c.revision, c.lanes, c.crowded, c.priority, c.once, c.runs_left, c.last_tick,
           c.fire_at <= now() AS due,
           CASE WHEN c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL THEN tick_key(c.job) END AS key
      FROM fence, batch CROSS JOIN LATERAL (
        SELECT * FROM catchups WHERE catchup = batch.catchup AND next_tick = batch.tick FOR UPDATE) r
      JOIN cursors c ON c.job = r.job AND c.generation = batch.generation
     WHERE (SELECT held_at IS NULL FROM cluster) AND c.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
       AND (c.next_tick IS NULL OR c.next_tick > batch.tick)
       AND (r.kind = 'backfill' OR c.runs_left IS DISTINCT FROM 0
            AND (c.next_tick IS NOT NULL OR c.ended OR c.task))),
pairs AS (                                   -- queues and priorities with the time of their first run, as in list_ready
    SELECT q.queue, -101::smallint AS priority, 'infinity'::timestamptz AS not_before
      FROM (SELECT DISTINCT queue FROM candidates) q
    UNION ALL
    SELECT pairs.queue, higher.priority, higher.not_before FROM pairs CROSS JOIN LATERAL (
        SELECT priority, not_before FROM live_runs
         WHERE queue = pairs.queue AND priority > pairs.priority AND owner IS NULL AND lane >= 0
         ORDER BY priority, not_before LIMIT 1) higher),
busy AS MATERIALIZED (SELECT DISTINCT queue FROM pairs WHERE not_before <= now() - interval '1 second'),
known AS MATERIALIZED (
    SELECT candidates.*, s.serial, s.out FROM candidates CROSS JOIN LATERAL (
        -- The first run of an owed tick (serial 0) is the one that catches it up.
        SELECT CASE WHEN candidates.kind = 'missed' THEN 0 WHEN t.serial IS NOT NULL THEN t.serial + 1
                    WHEN t.covered OR t.owed THEN 1 ELSE 0 END AS serial,
               CASE candidates.kind
                    WHEN 'missed'
                    THEN EXISTS (SELECT FROM skips s WHERE s.job = candidates.job AND s.tick = candidates.tick)
                    ELSE NOT candidates.reprocess AND (coalesce(t.ran, false) OR t.owed) END AS out
          FROM (SELECT max(h.serial) AS serial, bool_or(h.status NOT IN ('skipped', 'missed')) AS ran,
                       coalesce((SELECT b.until >= candidates.tick FROM run_history b
                                  WHERE b.job = candidates.job AND b.scheduled_at < candidates.tick AND b.serial = 0
                                  ORDER BY b.scheduled_at DESC LIMIT 1), false) AS covered,
                       EXISTS (SELECT FROM catchups o
                                WHERE candidates.kind = 'backfill' AND o.job = candidates.job AND o.kind = 'missed'
                                  AND candidates.tick BETWEEN o.next_tick AND o.until) AS owed
                  FROM runs h
                 WHERE candidates.kind = 'backfill' AND h.job = candidates.job AND h.scheduled_at = candidates.tick
                   AND h.serial < $3::integer) t) s),
placed AS MATERIALIZED (
    SELECT known.*, CASE
        WHEN out THEN NULL
        WHEN kind = 'backfill' AND concurrent <= (
            SELECT count(*) FROM live_runs r WHERE r.job = known.job AND r.scheduled_at BETWEEN since AND until
               AND r.serial < $3::integer) THEN NULL
        WHEN crowded AND lanes > 1 AND lanes - 1 <= (
            SELECT count(*) FROM live_runs r WHERE r.job = known.job AND r.lane >= 0) THEN NULL
        WHEN lanes > 1 THEN (
            SELECT g::smallint FROM generate_series(0, known.lanes - 1) g
             WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = known.job AND r.lane = g)
             ORDER BY g LIMIT 1 OFFSET 1)
        WHEN NOT EXISTS (SELECT FROM live_runs r WHERE r.job = known.job) THEN 0::smallint END AS lane FROM known),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority, once, key)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN key IS NULL THEN now() ELSE 'infinity' END, serial, queue,
           revision, lane, greatest(priority - 1, -100), once, key
      FROM placed WHERE lane IS NOT NULL AND NOT coalesce(due, false) AND queue NOT IN (SELECT queue FROM busy)
     ORDER BY job
    ON CONFLICT (job, lane) DO NOTHING RETURNING job),
moved AS MATERIALIZED (SELECT * FROM placed WHERE out OR job IN (SELECT job FROM inserted)),
unwanted AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, tick, now(), 0, revision, 4, 'by request' FROM moved WHERE out AND kind = 'missed'),
finished AS (DELETE FROM catchups t USING moved m WHERE t.catchup = m.catchup AND m.following IS NULL),
advanced AS (
    UPDATE catchups t SET next_tick = m.following, left_over = greatest(t.left_over - 1, 1)
      FROM moved m WHERE t.catchup = m.catchup AND m.following IS NOT NULL),
counted AS (                                 -- max_runs counts missed ticks that run after all, not backfills
    UPDATE cursors c SET last_tick = greatest(c.last_tick, m.tick), runs_left = m.left_over,
           ended = c.ended OR m.left_over IS NOT DISTINCT FROM 0,
           next_tick = CASE WHEN m.left_over = 0 THEN NULL ELSE c.next_tick END,
           fire_at = CASE WHEN m.left_over = 0 THEN NULL ELSE c.fire_at END
      FROM (SELECT *, CASE WHEN kind = 'missed' THEN runs_left - 1 ELSE runs_left END AS left_over
              FROM moved WHERE NOT out) m
     WHERE c.job = m.job AND (m.tick > m.last_tick OR m.kind = 'missed' AND m.runs_left IS NOT NULL))
SELECT catchup, queue, job, key IS NOT NULL AS keyed,
       CASE WHEN out THEN 'left out' WHEN job IN (SELECT job FROM inserted) THEN 'released'
       WHEN due THEN 'live' WHEN queue IN (SELECT queue FROM busy) THEN 'queue' ELSE 'lane' END AS fate
  FROM placed
