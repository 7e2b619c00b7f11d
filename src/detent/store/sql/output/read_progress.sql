-- How far some runs are. Arrays: $1 job, $2 scheduled_at, $3 serial. Positions are counted from 1.
SELECT v.position, p.token, p.at, p.fraction, p.message
  FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) WITH ORDINALITY AS v (job, scheduled_at, serial, position)
 CROSS JOIN LATERAL (
    SELECT * FROM run_progress WHERE job = v.job AND scheduled_at = v.scheduled_at AND serial = v.serial) p
