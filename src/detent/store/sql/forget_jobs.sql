-- What is left of jobs that were deleted so long ago that history knows nothing of them. $1 days, $2 limit. Their runs are
-- not younger than their deletion, so they are gone when every partition begins after it.
WITH gone AS MATERIALIZED (
    SELECT job FROM jobs j
     WHERE status = 'deleted' AND updated_at < now() - make_interval(days => $1::integer)
       AND updated_at < (SELECT min(since) FROM history_bounds)
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)
     ORDER BY updated_at LIMIT $2::integer FOR UPDATE SKIP LOCKED),
c AS (DELETE FROM cursors x USING gone WHERE x.job = gone.job),
r AS (DELETE FROM job_revisions x USING gone WHERE x.job = gone.job),
s AS (DELETE FROM segments x USING gone WHERE x.job = gone.job),
k AS (DELETE FROM skips x USING gone WHERE x.job = gone.job),
u AS (DELETE FROM catchups x USING gone WHERE x.job = gone.job),
p AS (DELETE FROM run_payloads x USING gone WHERE x.job = gone.job)
DELETE FROM jobs j USING gone WHERE j.job = gone.job RETURNING j.job
