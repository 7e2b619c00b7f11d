-- A range of past ticks to run beside the schedule. $1 job, $2 generation as read when the rest was computed, $3 first tick,
-- $4 last tick, $5 how many, $6 how many at once, $7 the latest first, $8 also what ran, $9 who. No row: read again.
INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over, concurrent, descending, reprocess,
                      created_by)
SELECT job, partition, 'backfill', schedule, $3::timestamptz, $4::timestamptz,
       CASE WHEN $7::boolean THEN $4::timestamptz ELSE $3::timestamptz END, $5::integer, $6::smallint, $7::boolean, $8::boolean,
       $9::text
  FROM cursors WHERE job = $1::bigint AND generation = $2::integer
RETURNING catchup
