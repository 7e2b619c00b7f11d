-- Complete jobs whose last tick has fired and whose last run has finished, also of those that were enqueued. $1 limit
WITH done AS MATERIALIZED (
    SELECT job, schedule FROM cursors c WHERE ended AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = c.job)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = c.job AND NOT b.parked)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = c.job AND b.parked)
       AND NOT EXISTS (SELECT FROM catchups k WHERE k.job = c.job)
     ORDER BY job LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED),
stopped AS (UPDATE cursors SET ended = false FROM done WHERE cursors.job = done.job)
UPDATE jobs j SET status = 'completed', updated_at = now(), collect_at = collection_of(j.definition, done.schedule)
  FROM done WHERE j.job = done.job AND j.status = 'active' RETURNING j.job
