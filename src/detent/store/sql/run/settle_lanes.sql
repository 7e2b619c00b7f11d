-- Settle runs of jobs that have several runs in this batch, each in a lane of its own: as run/settle, which takes one
-- run of each job. $1 node; arrays: $2 job, $3 scheduled_at, $4 token, $5 started, $6 finished, $7 lane, $8 serial,
-- $9 status, $10 reason, $11 result, $12 outcome, $13 error and $14 traceback of the attempt. No claim may be here
-- twice: its run would get two rows of history.
-- Returns what was not settled, by the whole claim: an earlier claim on a lane is not settled because a later one is.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::timestamptz[],
                         $7::integer[], $8::integer[], $9::smallint[], $10::text[], $11::text[], $12::text[],
                         $13::text[], $14::text[])
        AS t (job, scheduled_at, token, started, finished, lane, serial, status, reason, result, outcome, error,
              traceback)
     ORDER BY job, lane),
-- Locks in key order. The sub-select keeps this a probe per row, whatever size the table had when it was planned.
locked AS MATERIALIZED (
    SELECT batch.*, r.* FROM batch CROSS JOIN LATERAL (
        SELECT attempt, revision, replaced, key, payload FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at AND serial = batch.serial
           AND token = batch.token AND owner = $1 FOR UPDATE) r),
-- By key, never by the ctid of `locked`: after a wait, that names a version which this snapshot cannot see. Never by a
-- join, for the reason in task/settle.
deleted AS (
    DELETE FROM live_runs r
     WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE
    RETURNING r.job, r.lane),
ended AS MATERIALIZED (SELECT * FROM locked WHERE ((job, lane) IN (SELECT job, lane FROM deleted)) IS TRUE),
history AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status,
                             reason, result, key, payload)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, status,
           CASE WHEN replaced AND status = 3 THEN 'replaced' ELSE reason END, result, key, payload
      FROM ended),
recorded_attempts AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error,
                          traceback)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, outcome, error, traceback
      FROM ended WHERE status <> 1 OR attempt > 1)
SELECT job, lane FROM batch
 WHERE (job, lane, scheduled_at, serial, token) NOT IN (SELECT job, lane, scheduled_at, serial, token FROM ended)
