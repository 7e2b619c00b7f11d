-- Jobs that have a run waiting for its predecessor.
SELECT DISTINCT job FROM live_runs WHERE lane < 0 ORDER BY job
