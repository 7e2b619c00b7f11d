-- Add chunks of lines, and replace those of the last lines. Arrays: $1 job, $2 scheduled_at, $3 serial, $4 token, $5
-- attempt, $6 part, $7 first, $8 last, $9 lines. No fence: the key has the token, so an attempt that lost its run adds
-- only to its own lines. A chunk that is sent again, because a reply was lost, changes nothing.
INSERT INTO run_logs (job, scheduled_at, serial, token, attempt, part, first, last, lines)
SELECT t.job, t.scheduled_at, t.serial, t.token, t.attempt, t.part, t.first, t.last, t.lines
  FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::bigint[], $5::smallint[], $6::smallint[],
              $7::integer[], $8::integer[], $9::text[])
       AS t (job, scheduled_at, serial, token, attempt, part, first, last, lines)
 WHERE EXISTS (SELECT FROM jobs j WHERE j.job = t.job OFFSET 0)
 ORDER BY t.job, t.scheduled_at, t.serial, t.token, t.part
ON CONFLICT (job, scheduled_at, serial, token, part) DO UPDATE
   SET written_at = now(), first = excluded.first, last = excluded.last, lines = excluded.lines
 WHERE run_logs.last < excluded.last
