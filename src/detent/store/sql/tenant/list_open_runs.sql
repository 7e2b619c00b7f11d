-- Unfinished runs of a tenant that were not asked to stop yet, or that no worker has. $1 tenant, $2 limit
SELECT r.job, r.scheduled_at, r.serial FROM jobs j JOIN live_runs r USING (job)
 WHERE j.tenant = $1::integer AND (r.owner IS NULL OR NOT r.cancel) ORDER BY r.job, r.lane LIMIT $2::integer
