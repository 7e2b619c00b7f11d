-- A failed attempt and its next try, in one statement. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at, $5 serial,
-- $6 token, $7 started, $8 finished, $9 outcome, $10 error, $11 delay. Returns what was not settled.
-- A run that was asked to stop meanwhile has no next try: waiting for one would hold its lane for nothing.
WITH v AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::smallint[], $4::timestamptz[], $5::integer[], $6::bigint[],
                         $7::timestamptz[], $8::timestamptz[], $9::text[], $10::text[], $11::interval[])
        AS t (job, lane, scheduled_at, serial, token, started, finished, outcome, error, delay) ORDER BY job, lane),
l AS MATERIALIZED (
    SELECT v.*, r.* FROM v CROSS JOIN LATERAL (
        SELECT attempt, revision, cancel FROM live_runs
         WHERE job = v.job AND lane = v.lane AND scheduled_at = v.scheduled_at
           AND serial = v.serial AND token = v.token AND owner = $1 FOR UPDATE) r),
a AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, outcome, error FROM l),
d AS (
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l WHERE cancel)) IS TRUE),
h AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status, reason)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, 3, 'cancelled' FROM l WHERE cancel),
u AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, attempt = r.attempt + 1, not_before = now() + l.delay
      FROM l WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND r.job = l.job AND r.lane = l.lane AND NOT l.cancel)
SELECT job, lane FROM v WHERE (job, lane) NOT IN (SELECT job, lane FROM l)
