-- Return runs that were claimed but not started to their queues, uncounted. $1 node; arrays: $2 job, $3 lane,
-- $4 scheduled_at, $5 serial, $6 token
WITH locked AS MATERIALIZED (
    SELECT batch.job, batch.lane FROM (
        SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[])
            AS t (job, lane, scheduled_at, serial, token) ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT FROM live_runs WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r)
UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1         -- by key, as in settle
 WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND ((r.job, r.lane) IN (SELECT job, lane FROM locked)) IS TRUE
RETURNING r.job, r.lane
