-- One-offs that were completed long enough ago are deleted; their runs stay. $1 limit, $2 who
WITH done AS MATERIALIZED (
    SELECT job FROM jobs WHERE collect_at <= now() AND status = 'completed'
     ORDER BY collect_at LIMIT $1::integer FOR NO KEY UPDATE SKIP LOCKED),
c AS (
    UPDATE cursors c SET generation = c.generation + 1, next_tick = NULL, fire_at = NULL FROM done WHERE c.job = done.job
    RETURNING c.job, c.schedule),
e AS (
    INSERT INTO segments (job, since, until, schedule, anchor, tzdata, opened, opened_by, closed, closed_by)
    SELECT j.job, coalesce(j.since, j.created_at), now(), c.schedule, j.anchor, j.tzdata, coalesce(j.opened, 'created'),
           j.opened_by, 'deleted', $2::text
      FROM c JOIN jobs j USING (job) WHERE coalesce(j.since, j.created_at) < now())
UPDATE jobs j SET status = 'deleted', updated_at = now(), since = now(), opened = 'deleted', opened_by = $2::text, collect_at = NULL
  FROM c WHERE j.job = c.job RETURNING j.job
