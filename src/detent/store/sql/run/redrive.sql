-- Make dead runs pending again: the same runs under a higher token, with the job's current definition and all its
-- attempts. Earlier attempts are kept in `attempts`. Arrays: $1 job, $2 scheduled_at, $3 serial; then $4 tenant, $5
-- limit, $6 limits of the caller or NULL. As many runs of a job as it has free lanes, oldest first; the others stay
-- dead. A run with a concurrency key then waits for run/admit. Returns what happened to each, oldest first.
WITH dead AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, h.token, row_number() OVER (PARTITION BY h.job
     ORDER BY h.scheduled_at, h.serial) AS place
      FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) AS batch (job, scheduled_at, serial)
     CROSS JOIN LATERAL (
        SELECT * FROM run_history
         WHERE job = batch.job AND scheduled_at = batch.scheduled_at AND serial = batch.serial AND status = 2
           AND reason IS DISTINCT FROM 'discarded') h
      JOIN jobs j ON j.job = h.job AND j.tenant = $4::integer AND j.status <> 'deleted'
       AND ($6::jsonb IS NULL OR within_limits(j.job, $6::jsonb))),
free AS MATERIALIZED (
    SELECT c.job, c.queue, c.revision, c.priority, c.once,
           CASE WHEN c.key_limit IS NOT NULL OR c.key_rate IS NOT NULL THEN tick_key(c.job) END AS key, g AS lane,
           row_number() OVER (PARTITION BY c.job ORDER BY g DESC) AS place,
           greatest(c.lanes, 1) - (SELECT count(*) FROM live_runs r WHERE r.job = c.job AND r.lane >= 0) AS room
      FROM cursors c CROSS JOIN LATERAL generate_series(0, greatest(c.lanes, 1) - 1) g
     WHERE c.job IN (SELECT job FROM dead) AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane = g)),
picked AS MATERIALIZED (
    SELECT d.job, d.scheduled_at, d.serial, d.token, f.lane, f.queue, f.revision, f.priority, f.once, f.key
      FROM dead d JOIN free f USING (job, place) WHERE place <= room ORDER BY d.scheduled_at, d.job, d.serial
     LIMIT $5::integer),
inserted AS (
    INSERT INTO live_runs (job, scheduled_at, token, not_before, serial, queue, revision, lane, priority, once, key)
    SELECT job, scheduled_at, greatest(token, (SELECT incarnation FROM cluster) << 22) + 1,
           CASE WHEN key IS NULL THEN now() ELSE 'infinity' END, serial, queue, revision, lane, priority, once, key
      FROM picked ORDER BY job, lane
    ON CONFLICT (job, lane) DO NOTHING RETURNING job, scheduled_at, serial, queue),
gone AS (
    DELETE FROM run_history h USING inserted
     WHERE h.job = inserted.job AND h.scheduled_at = inserted.scheduled_at AND h.serial = inserted.serial)
SELECT d.job, d.scheduled_at, d.serial, inserted.queue FROM dead d LEFT JOIN inserted USING (job, scheduled_at, serial)
 ORDER BY d.scheduled_at, d.job, d.serial
