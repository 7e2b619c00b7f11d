-- After an edit, in its transaction and under its lock of the cursors: mark jobs with runs in lanes that they no longer
-- have. A separate statement, because a trigger that the edit waited for is not in the edit's snapshot. $1 jobs
UPDATE cursors c SET crowded = true
 WHERE c.job = ANY ($1::bigint[]) AND NOT c.crowded
   AND EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.lane >= greatest(c.lanes, 1))
RETURNING c.job
