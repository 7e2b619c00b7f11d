-- Skip one occurrence. $1 job, $2 tick, $3 reason, $4 who, $5 generation as read. The generation is incremented, so
-- that a fire that has not read this skip cannot decide about the tick. Nothing returned: the job has changed
-- meanwhile.
WITH changed AS (
    UPDATE cursors SET generation = generation + 1, skips = true WHERE job = $1::bigint AND generation = $5::integer
      RETURNING job),
added AS (
    INSERT INTO skips (job, tick, reason, created_by) SELECT job, $2::timestamptz, $3::text, $4::text FROM changed
    ON CONFLICT (job, tick) DO UPDATE SET reason = excluded.reason, created_by = excluded.created_by,
        created_at = now())
SELECT job, now() AS created_at FROM changed
