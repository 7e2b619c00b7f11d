-- Dead runs of a tenant that are not discarded, newest first, after a key. $1 tenant, $2 scheduled_at, $3 job and $4
-- serial of the key, $5 limit, $6 job or NULL, $7 group of errors or NULL, $8 limits
-- of the caller or NULL
SELECT h.job, h.scheduled_at, h.serial, h.status, h.reason, h.attempt, h.token, h.node, h.revision, h.started_at,
       h.finished_at, h.result, h.ticks, h.until
  FROM run_history h
 WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
   AND (h.scheduled_at, h.job, h.serial) < ($2::timestamptz, $3::bigint, $4::integer)
   AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
   AND ($6::bigint IS NULL OR h.job = $6::bigint)
   AND ($8::jsonb IS NULL OR within_limits(h.job, $8::jsonb))
   AND ($7::text IS NULL OR $7::text = dead_group(h))
 ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $5::integer
