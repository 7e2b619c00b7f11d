-- Jobs of which a run waits for the one before it.
SELECT DISTINCT job FROM live_runs WHERE lane < 0 ORDER BY job
