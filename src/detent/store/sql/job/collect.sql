-- Delete one-offs that were completed long enough ago, unless ticks are held, or a triggered or repeated run is not
-- finished; their history is kept. $1 limit, $2 who. Cursors are locked before jobs, as in every other change.
WITH done AS MATERIALIZED (
    SELECT c.job, c.schedule, coalesce(j.since, j.created_at) AS since, j.anchor, j.tzdata,
           coalesce(j.opened, 'created') AS opened, j.opened_by
      FROM jobs j JOIN cursors c USING (job) WHERE j.collect_at <= now() AND j.status = 'completed'
       AND (SELECT held_at IS NULL FROM cluster)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND NOT b.parked)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND b.parked)
     ORDER BY j.collect_at LIMIT $1::integer FOR NO KEY UPDATE OF c SKIP LOCKED),
gone AS (
    UPDATE jobs j SET status = 'deleted', updated_at = now(), since = now(), opened = 'deleted', opened_by = $2::text,
           collect_at = NULL
      FROM done WHERE j.job = done.job AND j.collect_at <= now() AND j.status = 'completed'
    RETURNING j.job, j.id, j.tenant),
stopped AS (
    UPDATE cursors c SET generation = c.generation + 1, next_tick = NULL, fire_at = NULL
      FROM gone WHERE c.job = gone.job),
closed_span AS (
    INSERT INTO segments (job, since, until, schedule, anchor, tzdata, opened, opened_by, closed, closed_by)
    SELECT job, since, now(), schedule, anchor, tzdata, opened, opened_by, 'deleted', $2::text
      FROM done JOIN gone USING (job) WHERE since < now())
SELECT job, id, tenant FROM gone
