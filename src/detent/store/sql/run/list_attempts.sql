-- The attempts kept for some runs. Arrays: $1 job, $2 scheduled_at, $3 serial. $4: with tracebacks, which are
-- long. Positions are counted from 1.
SELECT v.position, a.attempt, a.token, a.node, a.started_at, a.finished_at, a.outcome, a.error,
       CASE WHEN $4::boolean THEN a.traceback END AS traceback
  FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) WITH ORDINALITY AS v (job, scheduled_at, serial, position)
 CROSS JOIN LATERAL (
    SELECT * FROM attempts WHERE job = v.job AND scheduled_at = v.scheduled_at AND serial = v.serial) a
 ORDER BY v.position, a.token, a.finished_at
