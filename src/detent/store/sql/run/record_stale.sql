-- Record results that came too late; they change nothing else. A lost attempt keeps its own error. $1 node; arrays:
-- $2 job, $3 scheduled_at, $4 serial, $5 token, $6 started, $7 finished, $8 attempt, $9 what the late result said.
INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome, error)
SELECT job, scheduled_at, serial, token, $1, started, finished, attempt, 'stale', error
  FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[], $6::timestamptz[], $7::timestamptz[],
              $8::smallint[], $9::text[]) AS t (job, scheduled_at, serial, token, started, finished, attempt, error)
 ORDER BY job, scheduled_at, serial, token
ON CONFLICT (job, scheduled_at, serial, token) DO UPDATE SET outcome = 'stale',
       error = concat_ws(CASE WHEN attempts.error LIKE '%.' THEN ' ' ELSE '; ' END, attempts.error, excluded.error)
   WHERE attempts.outcome = 'lost'
