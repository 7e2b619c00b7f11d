-- Delete the progress of runs that have ended. $1 limit. Read as a whole: the table has a row for each run that
-- reported progress within the last hour or so.
WITH over AS MATERIALIZED (
    SELECT job, scheduled_at, serial, token FROM run_progress p WHERE at < now() - interval '10 minutes'
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = p.job AND r.scheduled_at = p.scheduled_at
                          AND r.serial = p.serial OFFSET 0)
     LIMIT $1::integer)
DELETE FROM run_progress p USING over
 WHERE p.job = over.job AND p.scheduled_at = over.scheduled_at AND p.serial = over.serial AND p.token = over.token
RETURNING p.job
