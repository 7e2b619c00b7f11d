-- Run a finished run again, with the job's current definition, after run/lock_job. $1 job, $2 scheduled_at, $3 the
-- serial of the first run, $4 the serial where runs of another kind begin. A lane as in run/trigger; if none is free,
-- or the job is deleted, nothing happens and `serial` is NULL. A run with a concurrency key then waits for run/admit.
WITH placed AS MATERIALIZED (
    SELECT c.*, j.name, j.status,
           CASE WHEN c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL THEN tick_key(c.job) END AS key, (
        SELECT max(serial) + 1 FROM runs
         WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial >= $3::integer
           AND serial < $4::integer) AS serial,
           CASE WHEN crowded AND lanes > 0 AND lanes <= (SELECT count(*) FROM live_runs r WHERE r.job = c.job
               AND r.lane >= 0) THEN NULL
        WHEN lanes = 1 THEN 0::smallint
        WHEN lanes < 0 THEN CASE WHEN EXISTS (SELECT FROM live_runs r WHERE r.job = c.job) THEN lanes
            ELSE 0::smallint END
        ELSE (SELECT g::smallint FROM generate_series(0, c.lanes - 1) g
         WHERE NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = g)
         ORDER BY g DESC LIMIT 1) END AS lane
      FROM cursors c JOIN jobs j USING (job) WHERE c.job = $1::bigint),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority, once, key)
    SELECT job, $2::timestamptz, (SELECT incarnation FROM cluster) << 22 | 1,
           CASE WHEN key IS NULL THEN now() ELSE 'infinity' END, serial, queue, revision, lane, priority, once, key
      FROM placed WHERE lane IS NOT NULL AND status <> 'deleted'
    ON CONFLICT (job, lane) DO NOTHING RETURNING serial)
SELECT job, name, status, queue, lane, (SELECT serial FROM inserted) AS serial FROM placed
