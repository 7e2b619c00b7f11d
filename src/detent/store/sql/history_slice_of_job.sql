-- As history_slice, for one job, along its key. $8 job
SELECT job, scheduled_at, serial, status, reason, attempt, token, node, revision, started_at, finished_at, result, ticks, until
  FROM run_history
 WHERE job = $8::bigint AND scheduled_at > $1::timestamptz AND scheduled_at <= $2::timestamptz
   AND (scheduled_at, job, serial) < ($3::timestamptz, $4::bigint, $5::integer)
   AND ($6::smallint[] IS NULL OR status = ANY ($6::smallint[]))
 ORDER BY scheduled_at DESC, serial DESC LIMIT $7::integer
