-- End some jobs of a tenant that is being deleted: no tick and no catch-up follows. Nothing is recorded about ticks
-- that were due, because the record is deleted too. $1 tenant, $2 how many jobs
WITH batch AS MATERIALIZED (
    SELECT job FROM jobs WHERE tenant = $1::integer AND status IN ('active', 'paused', 'completed')
     ORDER BY job LIMIT $2::integer),
locked AS MATERIALIZED (
    SELECT c.job FROM cursors c WHERE c.job IN (SELECT job FROM batch) ORDER BY c.job FOR NO KEY UPDATE),
stopped AS (
    UPDATE cursors c SET generation = c.generation + 1, next_tick = NULL, fire_at = NULL, ended = false
      FROM locked WHERE c.job = locked.job),
dropped AS (DELETE FROM catchups k USING batch WHERE k.job = batch.job)
UPDATE jobs j SET status = 'deleted', updated_at = now(), reason = NULL, paused_until = NULL, on_resume = NULL,
       collect_at = NULL
  FROM batch LEFT JOIN locked USING (job) WHERE j.job = batch.job RETURNING j.job
