-- As dead_letter/list, of one group, among the newest $9 runs: to find a rare group among very many runs, the error of
-- each must be read. $7 group of errors, $8 limits of the caller or NULL, $9 how many are read
SELECT d.job, d.scheduled_at, d.serial, d.status, d.reason, d.attempt, d.token, d.node, d.revision, d.started_at,
       d.finished_at, d.result, d.ticks, d.until
  FROM (SELECT h.* FROM run_history h
         WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded'
           AND (h.scheduled_at, h.job, h.serial) < ($2::timestamptz, $3::bigint, $4::integer)
           AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
           AND ($6::bigint IS NULL OR h.job = $6::bigint)
           AND ($8::jsonb IS NULL OR within_limits(h.job, $8::jsonb))
         ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $9::bigint) d
  LEFT JOIN LATERAL (
        SELECT a.error FROM attempts a
         WHERE a.job = d.job AND a.scheduled_at = d.scheduled_at AND a.serial = d.serial AND a.token = d.token
          LIMIT 1) a ON true
 WHERE error_group(coalesce(a.error, d.reason, '')) = $7::text
 ORDER BY d.scheduled_at DESC, d.job DESC, d.serial DESC LIMIT $5::integer
