-- Finished runs of a tenant in a range of time, newest first, after a key. $1 after, $2 up to and including; $3
-- scheduled_at, $4 job and $5 serial of the key; $6 statuses or NULL, $7 limit, $8 tenant, $9 limits of the caller
-- or NULL
SELECT job, scheduled_at, serial, status, reason, attempt, token, node, revision, started_at, finished_at, result,
       ticks, until
  FROM run_history h
 WHERE EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $8::integer)
   AND scheduled_at > $1::timestamptz AND scheduled_at <= $2::timestamptz
   AND (scheduled_at, job, serial) < ($3::timestamptz, $4::bigint, $5::integer)
   AND ($6::smallint[] IS NULL OR status = ANY ($6::smallint[]))
   AND ($9::jsonb IS NULL OR within_limits(h.job, $9::jsonb))
 ORDER BY scheduled_at DESC, job DESC, serial DESC LIMIT $7::integer
