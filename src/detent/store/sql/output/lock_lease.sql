-- The attempt of a pulled run that is held under this token. $1 tenant, $2 job, $3 scheduled_at, $4 serial, $5 token.
-- The lock lets requests that add lines to it take turns.
SELECT r.attempt FROM pull_leases l JOIN live_runs r ON r.job = l.job AND r.lane = l.lane AND r.token = l.token
 WHERE l.tenant = $1::integer AND l.job = $2::bigint AND l.scheduled_at = $3::timestamptz AND l.serial = $4::integer
   AND l.token = $5::bigint
   FOR UPDATE OF l
