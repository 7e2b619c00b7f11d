-- The runs of a job that are not finished. $1 job
SELECT job, scheduled_at, serial FROM live_runs WHERE job = $1::bigint ORDER BY lane
