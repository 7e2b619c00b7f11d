-- Which of these jobs are in these alerts, and whether they have recovered. $1 alerts, $2 jobs
SELECT alert, job, kind, recovered_at IS NOT NULL AS recovered FROM alert_jobs
 WHERE alert = ANY ($1::bigint[]) AND job = ANY ($2::bigint[])
