-- As history/list, for some jobs, along the key of each. $8 jobs
SELECT h.*
  FROM unnest($8::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT job, scheduled_at, serial, status, reason, attempt, token, node, revision, started_at, finished_at, result,
           ticks, until
      FROM run_history
     WHERE job = v.job AND scheduled_at > $1::timestamptz AND scheduled_at <= $2::timestamptz
       AND (scheduled_at, job, serial) < ($3::timestamptz, $4::bigint, $5::integer)
       AND ($6::smallint[] IS NULL OR status = ANY ($6::smallint[]))
     ORDER BY scheduled_at DESC, serial DESC LIMIT $7::integer) h
 ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $7::integer
