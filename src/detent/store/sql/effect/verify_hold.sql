-- Whether a run is still held under this token, at the end of a transaction of its handler; no row: it was lost. $1
-- node, $2 job, $3 lane, $4 scheduled_at, $5 serial, $6 token. A rescue of the run waits for the commit.
SELECT job FROM live_runs
 WHERE job = $2::bigint AND lane = $3::integer AND scheduled_at = $4::timestamptz AND serial = $5::integer
   AND token = $6::bigint AND owner = $1::bigint FOR SHARE
