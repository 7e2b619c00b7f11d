-- As fire, for jobs with max_runs, with ticks to skip or with runs in more lanes than they have since an edit, and after a lock
-- timeout: locks first, skipping locked cursors. In the third case the runs are counted, not their lanes.
-- runs_left falls only for ticks that became runs, which a plain UPDATE cannot know; the last run completes the job.
-- Parameters and answer as in fire, and $9: leave ticks for which no lane is free where they are ('refused') instead of
-- skipping them; for ticks that are late through no fault of their job.
WITH me AS MATERIALIZED (SELECT node FROM nodes WHERE node = $1 AND NOT evicted FOR KEY SHARE),
v AS MATERIALIZED (
    SELECT * FROM unnest($4::bigint[], $5::timestamptz[], $6::integer[], $7::timestamptz[], $8::timestamptz[])
        AS t (job, tick, generation, next_tick, fire_at)),
u AS MATERIALIZED (
    SELECT c.*, v.tick, v.next_tick, v.fire_at,
           c.skips AND EXISTS (SELECT FROM skips s WHERE s.job = v.job AND s.tick = v.tick) AS unwanted
      FROM me, v CROSS JOIN LATERAL (
        SELECT job, queue, revision, lanes, priority, once, runs_left, skips, crowded FROM cursors
         WHERE job = v.job AND next_tick = v.tick AND generation = v.generation AND fire_at <= now()
           AND NOT ($9::boolean AND CASE lanes WHEN -1 THEN EXISTS (SELECT FROM live_runs r WHERE r.job = v.job AND r.lane = -1)
                    ELSE (SELECT count(*) FROM live_runs r WHERE r.job = v.job AND (r.lane >= 0 OR lanes < 0)) >= greatest(lanes, 1) END)
           FOR NO KEY UPDATE SKIP LOCKED) c
     WHERE (SELECT held_at IS NULL FROM cluster)),
placed AS MATERIALIZED (
    SELECT u.*, CASE WHEN unwanted THEN NULL
        WHEN crowded AND lanes <= (SELECT count(*) FROM live_runs r WHERE r.job = u.job AND r.lane >= 0) AND lanes > 0 THEN NULL
        WHEN lanes = 1 THEN 0::smallint
        WHEN lanes < 0 THEN CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = u.job) THEN lanes ELSE 0::smallint END
        ELSE (SELECT g::smallint FROM generate_series(0, u.lanes - 1) g
         WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = u.job AND r.lane = g)
         ORDER BY g LIMIT 1) END AS lane FROM u),
i AS (
    INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, CASE WHEN lane >= 0 THEN $3::bigint END, tick, queue, revision, lane, priority, once
      FROM placed WHERE lane IS NOT NULL
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane),
q AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, queue, revision, lane, priority, once)
    SELECT job, tick, $2::bigint << 22 | 1, tick, queue, revision, lanes, priority, once
      FROM placed WHERE lanes < 0 AND lane = 0 AND job NOT IN (SELECT job FROM i)
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane),
made AS (SELECT * FROM i UNION ALL SELECT * FROM q),
s AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)
    SELECT job, tick, now(), 0, revision, 4, CASE WHEN unwanted THEN 'by request' ELSE 'overlap' END
      FROM placed WHERE job NOT IN (SELECT job FROM made)),
w AS (
    UPDATE cursors c SET last_tick = d.tick, skips = d.skips AND EXISTS (SELECT FROM skips s WHERE s.job = d.job AND s.tick > d.tick),
           crowded = d.crowded AND EXISTS (SELECT FROM live_runs r WHERE r.job = d.job AND r.lane >= greatest(d.lanes, 1)),
           runs_left = d.left_over, ended = d.left_over IS NOT DISTINCT FROM 0 OR d.next_tick IS NULL,
           next_tick = CASE WHEN d.left_over = 0 THEN NULL ELSE d.next_tick END,
           fire_at = CASE WHEN d.left_over = 0 THEN NULL ELSE coalesce(d.fire_at, d.next_tick) END
      FROM (SELECT u.*, u.runs_left - (i.job IS NOT NULL)::integer AS left_over FROM u LEFT JOIN made i USING (job)) d
     WHERE c.job = d.job)
SELECT job, lane, NULL AS why FROM made WHERE lane <> 0
UNION ALL SELECT job, NULL, CASE WHEN unwanted THEN 'by request' ELSE 'overlap' END FROM u WHERE job NOT IN (SELECT job FROM made)
UNION ALL SELECT job, NULL, 'refused' FROM v WHERE job NOT IN (SELECT job FROM u)
