-- As run/give_back, for runs that are to wait before they are claimed again: their target was not called, and is not to
-- be called yet. $1 node; arrays: $2 job, $3 lane, $4 scheduled_at, $5 serial, $6 token, $7 delay. The attempt is not
-- counted. A run that was cancelled meanwhile does not wait: its next worker ends it.
WITH locked AS MATERIALIZED (
    SELECT batch.job, batch.lane, batch.delay FROM (
        SELECT * FROM unnest($2::bigint[], $3::integer[], $4::timestamptz[], $5::integer[], $6::bigint[],
                             $7::interval[])
            AS t (job, lane, scheduled_at, serial, token, delay) ORDER BY job, lane) batch CROSS JOIN LATERAL (
        SELECT FROM live_runs WHERE job = batch.job AND lane = batch.lane AND scheduled_at = batch.scheduled_at
           AND serial = batch.serial AND token = batch.token AND owner = $1 FOR UPDATE) r)
UPDATE live_runs r SET owner = NULL, started_at = NULL, token = r.token + 1,
       not_before = CASE WHEN r.cancel THEN r.not_before ELSE now() + locked.delay END
  FROM locked WHERE r.job = ANY (ARRAY(SELECT job FROM locked)) AND r.job = locked.job AND r.lane = locked.lane
RETURNING r.job, r.lane
