-- Add a range of past ticks to run in addition to the schedule. $1 job, $2 generation as read when the rest was
-- computed, $3 first tick, $4 last tick, $5 how many, $6 how many concurrently, $7 the latest first, $8 also those that
-- ran, $9 who. No row: read again. The span is kept, because it may contain runs of ticks that the schedule of that
-- time did not have.
WITH made AS (
    INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over, concurrent, descending,
                          reprocess, created_by)
    SELECT job, partition, 'backfill', schedule, $3::timestamptz, $4::timestamptz,
           CASE WHEN $7::boolean THEN $4::timestamptz ELSE $3::timestamptz END, $5::integer, $6::smallint, $7::boolean,
           $8::boolean, $9::text
      FROM cursors WHERE job = $1::bigint AND generation = $2::integer
    RETURNING catchup, job, schedule),
kept AS (
    INSERT INTO segments (job, since, until, schedule, anchor, opened, opened_by, closed)
    SELECT job, $3::timestamptz - interval '1 microsecond', $4::timestamptz, schedule, j.anchor, 'backfill', $9::text,
           'backfill'
      FROM made JOIN jobs j USING (job)
    ON CONFLICT (job, since) DO UPDATE SET until = greatest(segments.until, excluded.until),
        schedule = excluded.schedule
     WHERE segments.opened = 'backfill')
SELECT catchup FROM made
