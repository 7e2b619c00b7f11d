-- One run of a tenant, live or finished. $1 job, $2 scheduled_at, $3 serial, $4 tenant, $5 limits of the caller or
-- NULL
SELECT job, scheduled_at, serial, status, reason, attempt, token, node, revision, started_at, finished_at, result,
       ticks, until, not_before, key
  FROM runs WHERE job = $1::bigint AND scheduled_at = $2::timestamptz AND serial = $3::integer
   AND EXISTS (SELECT FROM jobs j WHERE j.job = $1::bigint AND j.tenant = $4::integer)
   AND ($5::jsonb IS NULL OR within_limits($1::bigint, $5::jsonb))
