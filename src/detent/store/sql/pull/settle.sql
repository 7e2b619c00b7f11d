-- What became of pulled runs: an end, or another try. $1 tenant; arrays: $2 job, $3 scheduled_at, $4 serial, $5 token,
-- $6 final status (NULL: try again), $7 reason, $8 result, $9 outcome and $10 error of the attempt, $11 wait before the
-- next. A run that was asked to stop meanwhile has no next try. Returns what was written: position, counted from 1, and
-- final status; pull_recorded then tells a repeated report from one that came too late.
WITH v AS MATERIALIZED (
    SELECT DISTINCT ON (job, scheduled_at, serial, token) *
      FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[], $6::smallint[], $7::text[], $8::text[],
                  $9::text[], $10::text[], $11::interval[]) WITH ORDINALITY
           AS t (job, scheduled_at, serial, token, status, reason, result, outcome, error, delay, position)
     ORDER BY job, scheduled_at, serial, token, position),
p AS MATERIALIZED (
    SELECT v.*, l.lane, l.worker, l.claimed_at FROM v CROSS JOIN LATERAL (
        SELECT lane, worker, claimed_at FROM pull_leases
         WHERE job = v.job AND scheduled_at = v.scheduled_at AND serial = v.serial AND token = v.token AND tenant = $1
           FOR UPDATE) l),
e AS MATERIALIZED (
    SELECT p.*, r.attempt, r.revision, CASE WHEN r.cancel AND p.status IS DISTINCT FROM 1 THEN 3 ELSE p.status END AS final,
           CASE WHEN r.cancel AND p.status IS DISTINCT FROM 1 THEN 'cancelled' ELSE p.reason END AS why
      FROM (SELECT * FROM p ORDER BY job, lane) p CROSS JOIN LATERAL (
        SELECT attempt, revision, cancel FROM live_runs
         WHERE job = p.job AND lane = p.lane AND scheduled_at = p.scheduled_at AND serial = p.serial AND token = p.token
           AND owner = -p.worker FOR UPDATE) r),
g AS (
    DELETE FROM pull_leases l USING p
     WHERE l.job = ANY (ARRAY(SELECT job FROM p)) AND l.job = p.job AND l.scheduled_at = p.scheduled_at AND l.serial = p.serial),
d AS (                                       -- as in settle
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM e)) AND ((r.job, r.lane) IN (SELECT job, lane FROM e WHERE final IS NOT NULL)) IS TRUE),
u AS (
    UPDATE live_runs r SET owner = NULL, started_at = NULL, attempt = r.attempt + 1, not_before = now() + e.delay
      FROM e WHERE r.job = ANY (ARRAY(SELECT job FROM e)) AND r.job = e.job AND r.lane = e.lane AND e.final IS NULL),
h AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status, reason, result)
    SELECT job, scheduled_at, token, -worker, claimed_at, clock_timestamp(), serial, revision, attempt, final, why, result
      FROM e WHERE final IS NOT NULL),
a AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, -worker, claimed_at, clock_timestamp(), attempt, outcome, error
      FROM e WHERE final IS DISTINCT FROM 1 OR attempt > 1)
SELECT position, final FROM e
