-- Mark the runs that a node holds in queues that got a limit since. $1 node, $2 queues
UPDATE live_runs r SET limited = true FROM (
    SELECT job, lane FROM live_runs WHERE owner = $1 AND queue = ANY ($2::integer[]) AND NOT limited
     ORDER BY job, lane FOR UPDATE) v
 WHERE r.job = v.job AND r.lane = v.lane
