-- detent: compatible with 0009
-- Runs that may have ended their node, jobs with more runs under way than they may have, and runs of deleted jobs.

-- The loss of a node counts against a run only if nothing else ran there. NULL for nearly all runs, which costs a row nothing.
ALTER TABLE live_runs
    ADD COLUMN alone      boolean,            -- together with started_at: nothing else has run on its node since then
    ADD COLUMN lost_alone smallint;           -- how many nodes were lost while it ran there alone
-- For workers that pull: the lease was given alone, and its worker is given nothing else until then.
ALTER TABLE pull_leases ADD COLUMN alone_until timestamptz;
CREATE INDEX pull_leases_alone ON pull_leases (worker) WHERE alone_until IS NOT NULL;

-- The job was edited to fewer lanes than its runs occupy. Its fires count them, until the last one above is over.
ALTER TABLE cursors ADD COLUMN crowded boolean NOT NULL DEFAULT false;
UPDATE cursors c SET crowded = true
  FROM (SELECT job, max(lane) AS lane FROM live_runs WHERE lane > 0 GROUP BY job) r
 WHERE c.job = r.job AND r.lane >= greatest(c.lanes, 1);

-- `ended` also for a job that was deleted while runs of it were under way: what of them comes back to wait is cancelled.
UPDATE cursors c SET ended = true, next_tick = NULL, fire_at = NULL
  FROM jobs j WHERE j.job = c.job AND j.status = 'deleted' AND EXISTS (SELECT FROM live_runs r WHERE r.job = c.job);
