-- Runs that are both live and finished, which the settle makes impossible. $1 job or NULL
SELECT count(*) AS runs FROM live_runs r JOIN run_history h USING (job, scheduled_at, serial)
 WHERE $1::bigint IS NULL OR r.job = $1::bigint
