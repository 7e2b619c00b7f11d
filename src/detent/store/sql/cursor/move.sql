-- Pause, resume, delete, and the new schedules of edits. Arrays: $1 job, $2 generation and $3 last_tick as read when
-- the rest was computed (NULL: nothing has fired); $4 next tick, $5 its fire_at, $6 whether the job has ended, $7 the
-- tick up to which everything is accounted for now (NULL: as before), $8 status. The span of ticks that ends here: $9
-- its schedule, $10 its end, $11 what ended it; the one that begins: $12 since, $13 what began it, $14 anchor, $15 zone
-- data. $16 who. Ticks that were due and are given up are recorded as skipped, in ranges of at most a day: $17 jobs,
-- $18 first ticks, $19 last ticks, $20 counts, $21 reasons. Not returned: read again and recompute.
WITH batch AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
                         $6::boolean[], $7::timestamptz[], $8::text[], $9::integer[], $10::timestamptz[], $11::text[],
                         $12::timestamptz[], $13::text[], $14::timestamptz[], $15::text[])
        AS t (job, generation, last_tick, next_tick, fire_at, ended, through, status, schedule, until, closed, since,
              opened, anchor, tzdata)),
locked AS MATERIALIZED (
    SELECT batch.* FROM (SELECT * FROM batch ORDER BY job) batch CROSS JOIN LATERAL (
        SELECT FROM cursors
         WHERE job = batch.job AND generation = batch.generation AND last_tick = coalesce(batch.last_tick, '-infinity')
           FOR NO KEY UPDATE) c),
moved AS (
    UPDATE cursors c SET generation = c.generation + 1, next_tick = locked.next_tick, fire_at = locked.fire_at,
           ended = locked.ended, last_tick = greatest(c.last_tick, locked.through)
      FROM locked WHERE c.job = locked.job
    RETURNING c.job, c.revision, c.ended, c.schedule),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT moved.job, g.first_tick, now(), 0, moved.revision, 4, g.reason, g.ticks, g.last_tick
      FROM moved JOIN unnest($17::bigint[], $18::timestamptz[], $19::timestamptz[], $20::integer[], $21::text[])
               AS g (job, first_tick, last_tick, ticks, reason) USING (job)),
closed_span AS (
    INSERT INTO segments (job, since, until, schedule, anchor, tzdata, opened, opened_by, reason, closed, closed_by)
    SELECT j.job, coalesce(j.since, j.created_at), locked.until, locked.schedule, j.anchor, j.tzdata,
           coalesce(j.opened, 'created'), j.opened_by, j.reason, locked.closed, $16::text
      FROM locked JOIN moved USING (job) JOIN jobs j USING (job) WHERE locked.until > coalesce(j.since, j.created_at)),
outcome AS MATERIALIZED (
    SELECT locked.*, moved.schedule AS present, moved.ended AND NOT EXISTS (SELECT FROM live_runs r
     WHERE r.job = locked.job)
           AND NOT EXISTS (SELECT FROM catchups k WHERE k.job = locked.job) AS over
      FROM locked JOIN moved USING (job))
UPDATE jobs j SET updated_at = now(), status = CASE WHEN outcome.over THEN 'completed' ELSE outcome.status END,
       reason = CASE WHEN outcome.status = 'paused' THEN j.reason END,
       paused_until = CASE WHEN outcome.status = 'paused' THEN j.paused_until END,
       on_resume = CASE WHEN outcome.status = 'paused' THEN j.on_resume END,
       collect_at = CASE WHEN outcome.over THEN collection_of(j.definition, outcome.present) END,
       since = outcome.since, anchor = outcome.anchor, tzdata = outcome.tzdata, opened = outcome.opened,
       opened_by = CASE WHEN outcome.opened = 'paused' AND j.status = 'paused' THEN j.opened_by ELSE $16::text END
  FROM outcome WHERE j.job = outcome.job AND j.status <> 'deleted' RETURNING j.job
