-- Runs that are still held although twice their time limit has passed since they were ready. $1 job or NULL
SELECT j.name, r.scheduled_at, run_id(r.job, r.scheduled_at, r.serial) AS run, r.owner, r.attempt, r.cancel,
       extract(epoch FROM now() - coalesce(r.started_at, r.not_before))::float8 AS seconds,
       (j.definition ->> 'timeout_seconds')::float8 AS timeout
  FROM live_runs r JOIN jobs j USING (job)
 WHERE r.owner IS NOT NULL AND ($1::bigint IS NULL OR r.job = $1::bigint)
   AND coalesce(r.started_at, r.not_before)
       < now() - make_interval(secs => 2 * (j.definition ->> 'timeout_seconds')::float8)
 ORDER BY seconds DESC LIMIT 10
