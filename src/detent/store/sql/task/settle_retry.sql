-- As run/settle_retry, for runs of tasks: a run that is retried returns to the backlog, so that live_runs stays small
-- while a target is down. $1..$12 as there. Status 3 is cancelled.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                         $7::timestamptz[], $8::timestamptz[], $9::text[], $10::text[], $11::interval[],
                         $12::text[])
        AS t (job, lane, scheduled_at, serial, token, started, finished, outcome, error, delay, traceback)
     ORDER BY job, lane),
locked AS MATERIALIZED (
    SELECT batch.*, r.* FROM batch CROSS JOIN LATERAL (
        SELECT attempt, crashes, lost_alone, queue, revision, priority, once, cancel, replaced, key, payload
          FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error,
                          traceback)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, outcome, error, traceback FROM locked),
deleted AS (                                 -- by lane, as in task/settle
    DELETE FROM live_runs r WHERE r.lane >= 32768 AND r.lane = ANY (ARRAY(SELECT lane FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE RETURNING r.job, r.lane),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
                             reason, key, payload)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, 3,
           CASE WHEN replaced THEN 'replaced' ELSE 'cancelled' END, key, payload
      FROM locked WHERE cancel AND ((job, lane) IN (SELECT job, lane FROM deleted)) IS TRUE),
returned AS (
    INSERT INTO backlog (job, scheduled_at, not_before, token, serial, queue, revision, priority, attempt, crashes,
                         lost_alone, once, keyed, key, payload)
    SELECT job, scheduled_at, now() + delay, token, serial, queue, revision, priority, attempt + 1, crashes, lost_alone,
           once, key IS NOT NULL, key, payload
      FROM locked WHERE NOT cancel AND ((job, lane) IN (SELECT job, lane FROM deleted)) IS TRUE)
SELECT job, lane FROM batch WHERE (job, lane) NOT IN (SELECT job, lane FROM locked)
