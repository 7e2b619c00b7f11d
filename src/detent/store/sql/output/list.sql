-- Chunks of lines of a run of a tenant, in the order in which they were written. $1 job, $2 scheduled_at, $3 serial, $4
-- tenant, $5 limits of the caller or NULL, $6 attempt or NULL for all; behind this line: $7 token, $8 number; $9 how
-- many chunks.
-- A dead run that is retried counts its attempts from 1 again. Readers see them numbered on (store/run_rows.py): where
-- the next number is lower, an attempt was the last one of an earlier life. So was an attempt 1 that is followed by
-- another attempt 1, unless the former was not counted, because it is not known to have started.
SELECT token, number AS attempt, first, last, lines
  FROM (SELECT l.token, l.part, l.first, l.last, l.lines, l.attempt + earlier.attempts AS number
          FROM run_logs l,
               LATERAL (SELECT coalesce(sum(a.attempt), 0)::integer AS attempts
                          FROM (SELECT b.attempt, lead(b.attempt, 1, l.attempt) OVER (ORDER BY b.token) AS next,
                                       b.outcome IN ('lost', 'stale') AND b.started_at IS NULL AS uncounted
                                  FROM attempts b
                                 WHERE b.job = $1::bigint AND b.scheduled_at = $2::timestamptz
                                   AND b.serial = $3::integer AND b.token < l.token) a
                         WHERE a.next < a.attempt OR (a.next = 1 AND a.attempt = 1 AND NOT a.uncounted)) earlier
         WHERE l.job = $1::bigint AND l.scheduled_at = $2::timestamptz AND l.serial = $3::integer
           AND l.token >= $7::bigint AND (l.token > $7::bigint OR l.last > $8::integer)) numbered
 WHERE ($6::integer IS NULL OR number = $6::integer)
   AND EXISTS (SELECT FROM jobs j WHERE j.job = $1::bigint AND j.tenant = $4::integer)
   AND ($5::jsonb IS NULL OR within_limits($1::bigint, $5::jsonb))
 ORDER BY token, part LIMIT $9::integer
