-- Record a failed attempt and schedule the next, in one statement. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at,
-- $5 serial, $6 token, $7 started, $8 finished, $9 outcome, $10 error, $11 delay, $12
-- traceback. Returns what was not settled.
-- A run that was cancelled meanwhile is not retried (status 3 is cancelled): waiting for a retry would occupy its lane
-- for nothing.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                         $7::timestamptz[], $8::timestamptz[], $9::text[], $10::text[], $11::interval[],
                         $12::text[])
        AS t (job, lane, scheduled_at, serial, token, started, finished, outcome, error, delay, traceback)
     ORDER BY job, lane),
locked AS MATERIALIZED (
    SELECT batch.*, r.* FROM batch CROSS JOIN LATERAL (
        SELECT attempt, revision, cancel, replaced, key, payload FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error,
                          traceback)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, outcome, error, traceback FROM locked),
deleted AS (
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE cancel)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
                             reason, key, payload)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, 3,
           CASE WHEN replaced THEN 'replaced' ELSE 'cancelled' END, key, payload
      FROM locked WHERE cancel),
retried AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, attempt = r.attempt + 1, not_before = now() + locked.delay
      FROM locked WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND r.job = locked.job AND r.lane = locked.lane
       AND NOT locked.cancel)
SELECT job, lane FROM batch WHERE (job, lane) NOT IN (SELECT job, lane FROM locked)
