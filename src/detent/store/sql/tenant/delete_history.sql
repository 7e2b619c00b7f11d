-- Delete some of the finished runs, attempts, lines and payloads of these jobs. $1 jobs, $2 how many of each. Found and
-- deleted by key: these tables are large, and only their partitions' keys begin with the job.
WITH runs AS MATERIALIZED (
    SELECT h.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
        SELECT job, scheduled_at, serial FROM run_history WHERE job = v.job LIMIT $2::integer) h LIMIT $2::integer),
tries AS MATERIALIZED (
    SELECT a.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
        SELECT job, scheduled_at, serial, token FROM attempts WHERE job = v.job LIMIT $2::integer) a LIMIT $2::integer),
written AS MATERIALIZED (
    SELECT l.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
        SELECT job, scheduled_at, serial, token, part FROM run_logs WHERE job = v.job LIMIT $2::integer) l
     LIMIT $2::integer),
given AS MATERIALIZED (
    SELECT p.* FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
        SELECT job, scheduled_at FROM run_payloads WHERE job = v.job LIMIT $2::integer) p LIMIT $2::integer),
gone_runs AS (
    DELETE FROM run_history h USING runs
     WHERE h.job = runs.job AND h.scheduled_at = runs.scheduled_at AND h.serial = runs.serial RETURNING h.job),
gone_tries AS (
    DELETE FROM attempts a USING tries
     WHERE a.job = tries.job AND a.scheduled_at = tries.scheduled_at AND a.serial = tries.serial
       AND a.token = tries.token RETURNING a.job),
gone_logs AS (
    DELETE FROM run_logs l USING written
     WHERE l.job = written.job AND l.scheduled_at = written.scheduled_at AND l.serial = written.serial
       AND l.token = written.token AND l.part = written.part RETURNING l.job),
gone_progress AS (DELETE FROM run_progress p WHERE p.job = ANY ($1::bigint[]) RETURNING p.job),
gone_steps AS (
    DELETE FROM run_steps s USING (
        SELECT job, scheduled_at, serial, name FROM run_steps WHERE job = ANY ($1::bigint[]) LIMIT $2::integer) few
     WHERE s.job = few.job AND s.scheduled_at = few.scheduled_at AND s.serial = few.serial AND s.name = few.name
    RETURNING s.job),
gone_payloads AS (
    DELETE FROM run_payloads p USING given
     WHERE p.job = given.job AND p.scheduled_at = given.scheduled_at RETURNING p.job)
SELECT 'run_history' AS name, count(*) AS rows FROM gone_runs
UNION ALL SELECT 'attempts', count(*) FROM gone_tries
UNION ALL SELECT 'run_logs', count(*) FROM gone_logs
UNION ALL SELECT 'run_progress', count(*) FROM gone_progress
UNION ALL SELECT 'run_steps', count(*) FROM gone_steps
UNION ALL SELECT 'run_payloads', count(*) FROM gone_payloads
