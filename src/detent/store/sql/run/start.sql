-- Record the start before the first call of at_most_once runs, and of runs that already survived a crash: from here on
-- a crash is a lost attempt. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at, $5 serial, $6 token, $7 whether nothing
-- else runs on this node. Returns each run that this node still holds, with a verdict: go; cancel, it was cancelled;
-- begun, it was started before and may be called only once.
WITH locked AS MATERIALIZED (
    SELECT batch.job, batch.lane, batch.alone, r.cancel, r.once AND r.started_at IS NOT NULL AS begun
      FROM (SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                                 $7::boolean[])
        AS t (job, lane, scheduled_at, serial, token, alone) ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT cancel, once, started_at FROM live_runs
         WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r),
started AS (                                 -- by key, as in settle
    UPDATE live_runs r SET started_at = clock_timestamp(),
           alone = CASE WHEN (r.job, r.lane) IN (SELECT job, lane FROM locked WHERE alone) THEN true END
     WHERE r.job = ANY (ARRAY(SELECT job FROM locked))
       AND ((r.job, r.lane) IN (SELECT job, lane FROM locked WHERE NOT cancel AND NOT begun)) IS TRUE)
SELECT job, lane, CASE WHEN cancel THEN 'cancel' WHEN begun THEN 'begun' ELSE 'go' END AS verdict FROM locked
