-- Pause, resume, delete, and the new schedules of edits. Arrays: $1 job, $2 generation and $3 last_tick as read when the rest
-- was computed (NULL: nothing has fired); $4 next tick, $5 its fire_at, $6 whether the job has come to its end; then $7 status,
-- $8 reason. Ticks that were due and are given up are accounted for as skipped, none longer than a day: $9 jobs, $10 first
-- ticks, $11 last ticks, $12 counts, $13 reason. Not returned: read again and recompute.
WITH v AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::boolean[])
        AS t (job, generation, last_tick, next_tick, fire_at, ended)),
g AS MATERIALIZED (
    SELECT * FROM unnest($9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::integer[])
        AS t (job, first_tick, last_tick, ticks)),
l AS MATERIALIZED (
    SELECT v.* FROM (SELECT * FROM v ORDER BY job) v CROSS JOIN LATERAL (
        SELECT FROM cursors
         WHERE job = v.job AND generation = v.generation AND last_tick = coalesce(v.last_tick, '-infinity')
           FOR NO KEY UPDATE) c),
c AS (
    UPDATE cursors c SET generation = c.generation + 1, next_tick = l.next_tick, fire_at = l.fire_at, ended = l.ended,
           last_tick = greatest(c.last_tick, (SELECT max(g.last_tick) FROM g WHERE g.job = c.job))
      FROM l WHERE c.job = l.job
    RETURNING c.job, c.revision, c.ended),
s AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT c.job, g.first_tick, now(), 0, c.revision, 4, $13::text, g.ticks, g.last_tick FROM c JOIN g USING (job))
UPDATE jobs j SET updated_at = now(), reason = $8::text,
       status = CASE WHEN c.ended AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job) THEN 'completed' ELSE $7::text END
  FROM c WHERE j.job = c.job AND j.status <> 'deleted' RETURNING j.job
