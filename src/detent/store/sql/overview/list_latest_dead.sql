-- The newest run of each job, if it is dead and the job has no open run, or the run is an on-demand run, which waits in
-- the backlog. Ticks that did not run do not count as runs. $1 jobs
SELECT h.job, h.scheduled_at, h.serial FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT job, scheduled_at, serial, status FROM run_history WHERE job = v.job AND status IN (1, 2, 3)
     ORDER BY scheduled_at DESC, serial DESC LIMIT 1) h
 WHERE h.status = 2 AND (h.serial >= 201326592 OR NOT EXISTS (SELECT FROM live_runs r WHERE r.job = h.job))
