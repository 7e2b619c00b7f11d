-- Runs that were claimed but not started go back, uncounted. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at,
-- $5 serial, $6 token
WITH l AS MATERIALIZED (
    SELECT v.job, v.lane FROM (SELECT * FROM unnest($2::bigint[], $3::smallint[], $4::timestamptz[], $5::integer[], $6::bigint[])
        AS t (job, lane, scheduled_at, serial, token) ORDER BY job, lane) v CROSS JOIN LATERAL (
        SELECT FROM live_runs WHERE job = v.job AND lane = v.lane AND scheduled_at = v.scheduled_at
           AND serial = v.serial AND token = v.token AND owner = $1 FOR UPDATE) r)
UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1         -- as in settle
 WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l)) IS TRUE
RETURNING r.job, r.lane
