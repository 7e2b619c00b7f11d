-- Runs that are not finished. $1 jobs
SELECT job, scheduled_at, serial FROM live_runs WHERE job = ANY ($1::bigint[]) ORDER BY job, lane
