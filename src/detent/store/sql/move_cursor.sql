-- Pause, resume, delete, and the new schedule of an edit. $1 job, $2 generation and $3 last_tick as read when the rest
-- was computed (NULL: nothing has fired); $4 next tick, $5 its fire_at, $6 whether the job has come to its end, $7 status,
-- $8 reason. Ticks that were due and are given up are accounted for as skipped: $9 first ticks, $10 last ticks, $11 counts,
-- $12 reason. No row: read again and recompute.
WITH c AS (
    UPDATE cursors SET generation = generation + 1, next_tick = $4::timestamptz, fire_at = $5::timestamptz, ended = $6::boolean,
           last_tick = greatest(last_tick, (SELECT max(last) FROM unnest($10::timestamptz[]) AS last))
     WHERE job = $1::bigint AND generation = $2::integer AND last_tick = coalesce($3::timestamptz, '-infinity')
    RETURNING job, revision),
s AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT c.job, g.first_tick, now(), 0, c.revision, 4, $12::text, g.ticks, g.last_tick
      FROM c, unnest($9::timestamptz[], $10::timestamptz[], $11::integer[]) AS g (first_tick, last_tick, ticks))
UPDATE jobs j SET updated_at = now(), reason = $8::text,
       status = CASE WHEN $6::boolean AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job) THEN 'completed' ELSE $7::text END
  FROM c WHERE j.job = c.job AND j.status <> 'deleted' RETURNING j.job
