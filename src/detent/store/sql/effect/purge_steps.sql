-- Delete the steps of runs that have ended, one page at a time, as task/purge_unique_keys. $1 job, $2 scheduled_at, $3
-- serial and $4 name to begin after, $5 how many are read. Dead runs (status 2) keep their steps until they are retried
-- or discarded, or history no longer has them. Returns how many were deleted, and the last key of the page.
WITH page AS MATERIALIZED (
    SELECT job, scheduled_at, serial, name FROM run_steps
     WHERE (job, scheduled_at, serial, name) > ($1::bigint, $2::timestamptz, $3::integer, $4::text)
     ORDER BY job, scheduled_at, serial, name LIMIT $5::integer),
last AS MATERIALIZED (
    SELECT job, scheduled_at, serial, name FROM page ORDER BY job DESC, scheduled_at DESC, serial DESC, name DESC
     LIMIT 1),
runs AS MATERIALIZED (SELECT DISTINCT job, scheduled_at, serial FROM page),
over AS MATERIALIZED (
    SELECT job, scheduled_at, serial FROM runs s
     WHERE NOT EXISTS (
           SELECT FROM backlog b WHERE b.serial = s.serial AND b.scheduled_at = s.scheduled_at AND b.job = s.job
           OFFSET 0)
       AND NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = s.job AND r.lane = s.serial AND r.scheduled_at = s.scheduled_at
              AND r.serial = s.serial OFFSET 0)
       AND NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = s.job AND r.lane < 32768 AND r.serial = s.serial
              AND r.scheduled_at = s.scheduled_at OFFSET 0)
       AND NOT EXISTS (
           SELECT FROM run_history h WHERE h.job = s.job AND h.scheduled_at = s.scheduled_at AND h.serial = s.serial
              AND h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' OFFSET 0)),
gone AS (
    DELETE FROM run_steps s
     WHERE (s.job, s.scheduled_at, s.serial, s.name) > ($1::bigint, $2::timestamptz, $3::integer, $4::text)
       AND (s.job, s.scheduled_at, s.serial, s.name) <= (
           (SELECT job FROM last), (SELECT scheduled_at FROM last), (SELECT serial FROM last), (SELECT name FROM last))
       AND ((s.job, s.scheduled_at, s.serial) IN (SELECT job, scheduled_at, serial FROM over)) IS TRUE
    RETURNING s.job)
SELECT (SELECT count(*) FROM gone) AS gone, job, scheduled_at, serial, name FROM last
