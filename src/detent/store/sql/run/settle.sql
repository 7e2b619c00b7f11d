-- The end of runs: the live row goes, history stays. $1 node; arrays: $2 job, $3 scheduled_at, $4 token, $5 started,
-- $6 finished, $7 lane, $8 serial, $9 status, $10 reason, $11 result, $12 outcome, $13 error of the attempt.
-- Returns what was not settled; lost_reply then tells a repeated settle from a lost claim.
WITH v AS MATERIALIZED (
    SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7::smallint[],
                         $8::integer[], $9::smallint[], $10::text[], $11::text[], $12::text[], $13::text[])
        AS t (job, scheduled_at, token, started, finished, lane, serial, status, reason, result, outcome, error)
     ORDER BY job, lane),
l AS MATERIALIZED (                          -- locks in key order; the sub-select keeps it a probe per row, whatever
    SELECT v.*, r.* FROM v CROSS JOIN LATERAL (          -- the size of the table when this was planned
        SELECT attempt, revision FROM live_runs
         WHERE job = v.job AND lane = v.lane AND scheduled_at = v.scheduled_at AND serial = v.serial
           AND token = v.token AND owner = $1 FOR UPDATE) r),
-- By key, never by the ctid of l: after a wait that names a version this snapshot cannot see. And never by a join: where a
-- vacuum last saw the queue with next to nothing in a large file, a join is planned from end to end of it, or of the batch for
-- each of its rows (38,000 runs/s fell to 10,000). The array is a probe per row, IS TRUE keeps the rest a look into a hash.
d AS (
    DELETE FROM live_runs r WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l)) IS TRUE
    RETURNING r.job, r.lane),
e AS MATERIALIZED (SELECT * FROM l WHERE ((job, lane) IN (SELECT job, lane FROM d)) IS TRUE),
h AS (
    INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status, reason, result)
    SELECT job, scheduled_at, token, $1, started, finished, serial, revision, attempt, status, reason, result FROM e),
a AS (
    INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
    SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, outcome, error FROM e WHERE status <> 1 OR attempt > 1)
SELECT job, lane FROM v WHERE (job, lane) NOT IN (SELECT job, lane FROM d)
