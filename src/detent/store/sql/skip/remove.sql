-- Cancel the skip of an occurrence. $1 job, $2 tick, $3 generation as read. Nothing returned: the job has changed
-- meanwhile.
WITH changed AS (
    UPDATE cursors SET generation = generation + 1,
           skips = EXISTS (SELECT FROM skips WHERE job = $1::bigint AND tick <> $2::timestamptz AND tick > last_tick)
     WHERE job = $1::bigint AND generation = $3::integer RETURNING job),
removed AS (DELETE FROM skips WHERE job IN (SELECT job FROM changed) AND tick = $2::timestamptz)
SELECT job FROM changed
