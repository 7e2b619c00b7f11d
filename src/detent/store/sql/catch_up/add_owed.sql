-- Add ticks of a pause that are to run after it, released like missed ones. $1 job, $2 first tick, $3 last tick, $4 how
-- many, $5 who, $6 the schedule whose ticks they are
INSERT INTO catchups (job, partition, kind, schedule, since, until, next_tick, left_over, created_by)
SELECT job, partition, 'missed', $6::integer, $2::timestamptz, $3::timestamptz, $2::timestamptz, $4::integer, $5::text
  FROM cursors WHERE job = $1::bigint
