-- Move on-demand runs of jobs with a schedule from the backlog into lanes of their job, as pending runs: by priority
-- and age, as many as lanes are free. The head of each job from task/list_heads that has the highest priority: $1 job,
-- $2 queue, $3 keyed, $4 priority. Fires take the lowest free lane, these take the highest, so that they compete only
-- for the last. QUEUE and REPLACE: lane 0 if the job has no other run, else the negative lane in which runs wait. A run
-- whose lane is taken meanwhile stays in the backlog, and the next pass tries again. By the clock and not by now(): a
-- trigger releases what it has enqueued itself, which is due later than its transaction began. A run with a
-- concurrency key then waits for run/admit. Returns the jobs and queues.
WITH lanes AS MATERIALIZED (
    SELECT c.job, g.lane, row_number() OVER (PARTITION BY c.job ORDER BY g.lane DESC) AS nth
      FROM unnest($1::bigint[]) AS wanted (j)
     CROSS JOIN LATERAL (SELECT job, lanes, crowded FROM cursors WHERE job = wanted.j AND NOT task) c
     CROSS JOIN LATERAL (
        SELECT n AS lane FROM generate_series(0, c.lanes - 1) AS n
         WHERE c.lanes > 0 AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = n)
           AND (NOT c.crowded OR c.lanes > (SELECT count(*) FROM live_runs r WHERE r.job = c.job AND r.lane >= 0))
        UNION ALL
        SELECT CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = c.job) THEN c.lanes ELSE 0 END WHERE c.lanes < 0
           AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = c.lanes)) g
     WHERE (SELECT held_at IS NULL FROM cluster)
       AND EXISTS (SELECT FROM jobs j WHERE j.job = c.job AND j.status <> 'deleted')),
counted AS MATERIALIZED (SELECT job, max(nth) AS free FROM lanes GROUP BY job),
next AS MATERIALIZED (
    SELECT b.*, row_number() OVER (PARTITION BY b.job ORDER BY b.priority DESC, b.not_before, b.serial) AS nth
      FROM unnest($1::bigint[], $2::integer[], $3::boolean[], $4::smallint[]) AS head (job, queue, keyed, priority)
      JOIN counted USING (job) CROSS JOIN LATERAL (
        SELECT * FROM backlog
         WHERE job = head.job AND queue = head.queue AND keyed = head.keyed AND priority = head.priority AND NOT parked
           AND not_before <= (SELECT clock_timestamp()) AND queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
         ORDER BY not_before LIMIT counted.free FOR UPDATE SKIP LOCKED) b),
placed AS MATERIALIZED (SELECT next.*, lanes.lane FROM next JOIN lanes USING (job, nth)),
taken AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, attempt, crashes,
                           lost_alone, priority, once, key, payload)
    SELECT job, scheduled_at, token, CASE WHEN key IS NULL THEN not_before ELSE 'infinity' END, serial, queue, revision,
           lane, attempt, crashes, lost_alone, priority, once, key, payload
      FROM placed ORDER BY job, lane
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, lane, scheduled_at, serial, queue, key),
gone AS (
    DELETE FROM backlog b WHERE b.serial = ANY (ARRAY(SELECT serial FROM taken))
       AND ((b.serial, b.scheduled_at, b.job) IN (SELECT serial, scheduled_at, job FROM taken)) IS TRUE)
SELECT job, lane, queue, key FROM taken
