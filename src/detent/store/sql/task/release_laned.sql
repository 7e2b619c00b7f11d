-- Move on-demand runs of jobs with a schedule from the backlog into lanes of their job, as pending runs: by priority
-- and age, as many as lanes are free. Heads of these jobs from task/list_heads: $1 job, $2 queue, $3 keyed, $4
-- priority. Fires take the lowest free lane, these take the highest, so that they compete only for the last. QUEUE and
-- REPLACE: lane 0 if the job has no other run, else the negative lane in which runs wait. A run whose lane is taken
-- meanwhile stays in the backlog, and the next pass tries again. A run with a concurrency key then waits for run/admit.
-- $5 whether to do so although the cluster is held: what an operator triggers then is meant to run. Returns the jobs,
-- lanes and queues.
WITH lanes AS MATERIALIZED (
    SELECT c.job, g.lane, row_number() OVER (PARTITION BY c.job ORDER BY g.lane DESC) AS nth, c.capacity
      FROM (SELECT DISTINCT j FROM unnest($1::bigint[]) AS wanted (j)) wanted
     CROSS JOIN LATERAL (
        -- Where more runs are under way than the job has lanes, their lanes are above its own: count them.
        SELECT job, lanes, CASE WHEN crowded AND lanes > 0 THEN lanes - (
            SELECT count(*) FROM live_runs r WHERE r.job = wanted.j AND r.lane >= 0) ELSE 1000000 END AS capacity
          FROM cursors WHERE job = wanted.j AND NOT task) c
     CROSS JOIN LATERAL (
        SELECT n AS lane FROM generate_series(0, c.lanes - 1) AS n
         WHERE c.lanes > 0 AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = n)
        UNION ALL
        SELECT CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = c.job) THEN c.lanes ELSE 0 END WHERE c.lanes < 0
           AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = c.lanes)) g
     WHERE ($5::boolean OR (SELECT held_at IS NULL FROM cluster))
       AND EXISTS (SELECT FROM jobs j WHERE j.job = c.job AND j.status <> 'deleted')),
counted AS MATERIALIZED (SELECT job, least(max(nth), max(capacity)) AS free FROM lanes GROUP BY job),
next AS MATERIALIZED (
    SELECT b.*, row_number() OVER (PARTITION BY b.job ORDER BY b.priority DESC, b.not_before, b.serial) AS nth,
           counted.free
      FROM unnest($1::bigint[], $2::integer[], $3::boolean[], $4::smallint[]) AS head (job, queue, keyed, priority)
      JOIN counted USING (job) CROSS JOIN LATERAL (
        SELECT * FROM backlog
         WHERE job = head.job AND queue = head.queue AND keyed = head.keyed AND priority = head.priority AND NOT parked
           -- The clock, not now(): a trigger enqueues its run in this transaction, after it began.
           AND not_before <= (SELECT clock_timestamp()) AND queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
         ORDER BY not_before LIMIT greatest(counted.free, 0) FOR UPDATE SKIP LOCKED) b),
placed AS MATERIALIZED (SELECT next.*, lanes.lane FROM next JOIN lanes USING (job, nth) WHERE next.nth <= next.free),
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
