-- Record how far attempts are. Arrays: $1 job, $2 scheduled_at, $3 serial, $4 token, $5 at (seconds since 1970), $6
-- fraction, $7 message. An attempt that lost its run does not replace what a later one reported.
INSERT INTO run_progress (job, scheduled_at, serial, token, at, fraction, message)
SELECT t.job, t.scheduled_at, t.serial, t.token, to_timestamp(t.at), t.fraction, t.message
  FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::bigint[], $5::double precision[], $6::real[],
              $7::text[]) AS t (job, scheduled_at, serial, token, at, fraction, message)
 WHERE EXISTS (SELECT FROM jobs j WHERE j.job = t.job OFFSET 0)
 ORDER BY t.job, t.scheduled_at, t.serial
ON CONFLICT (job, scheduled_at, serial) DO UPDATE
   SET token = excluded.token, at = excluded.at, fraction = excluded.fraction, message = excluded.message
 WHERE run_progress.token <= excluded.token
