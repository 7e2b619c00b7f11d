-- Mark a run that was started alone as no longer alone, because others are about to start on its node: from here on the
-- loss of the node does not count against it. $1 node, $2 job, $3 lane, $4 scheduled_at, $5 serial, $6 token
WITH locked AS MATERIALIZED (
    SELECT job, lane FROM live_runs
     WHERE job = $2 AND lane = $3 AND scheduled_at = $4 AND serial = $5 AND token = $6 AND owner = $1 FOR UPDATE)
UPDATE live_runs r SET alone = NULL FROM locked WHERE r.job = locked.job AND r.lane = locked.lane RETURNING r.job,
       r.lane
