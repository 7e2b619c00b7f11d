-- Which of these runs are not finished; ticks are never in the backlog. Arrays: $1 job, $2 scheduled_at, $3 serial.
-- One snapshot of both tables: a run that moves from one to the other is in exactly one of them.
SELECT batch.job, batch.scheduled_at, batch.serial
  FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[]) AS batch (job, scheduled_at, serial)
 WHERE EXISTS (SELECT FROM backlog b
                WHERE b.serial = batch.serial AND b.scheduled_at = batch.scheduled_at AND b.job = batch.job)
    OR EXISTS (SELECT FROM live_runs r
                WHERE r.job = batch.job AND r.lane = batch.serial AND r.lane >= 32768
                  AND r.scheduled_at = batch.scheduled_at AND r.serial = batch.serial)
    OR EXISTS (SELECT FROM live_runs r
                WHERE r.job = batch.job AND r.lane < 32768 AND r.serial = batch.serial
                  AND r.scheduled_at = batch.scheduled_at)
