-- Before the first call of at_most_once runs, and of runs that already survived a crash: from here on a crash is a
-- lost attempt. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at, $5 serial, $6 token, $7 whether nothing else runs on this node.
-- Each that is still this node's comes back with a verdict: go; cancel, it was asked to stop; begun, it was started before and may be called only once.
WITH l AS MATERIALIZED (
    SELECT v.job, v.lane, v.alone, r.cancel, r.once AND r.started_at IS NOT NULL AS begun
      FROM (SELECT * FROM unnest($2::bigint[], $3::smallint[], $4::timestamptz[], $5::integer[], $6::bigint[], $7::boolean[])
        AS t (job, lane, scheduled_at, serial, token, alone) ORDER BY job, lane) v CROSS JOIN LATERAL (
        SELECT cancel, once, started_at FROM live_runs WHERE job = v.job AND lane = v.lane AND scheduled_at = v.scheduled_at
           AND serial = v.serial AND token = v.token AND owner = $1 FOR UPDATE) r),
u AS (
    UPDATE live_runs r SET started_at = clock_timestamp(),         -- as in settle
           alone = CASE WHEN (r.job, r.lane) IN (SELECT job, lane FROM l WHERE alone) THEN true END
     WHERE r.job = ANY (ARRAY(SELECT job FROM l)) AND ((r.job, r.lane) IN (SELECT job, lane FROM l WHERE NOT cancel AND NOT begun)) IS TRUE)
SELECT job, lane, CASE WHEN cancel THEN 'cancel' WHEN begun THEN 'begun' ELSE 'go' END AS verdict FROM l
