-- Drop the rest of ranges. Arrays: $1 range, $2 its expected next tick; the ticks that were expected are recorded in
-- the ledger as missed, in ranges of at most a day: $3 range, $4 first tick, $5 last tick, $6 count, $7 reason. Not
-- returned: the range has moved.
WITH dropped AS (
    DELETE FROM catchups k USING unnest($1::bigint[], $2::timestamptz[]) AS batch (catchup, tick)
     WHERE k.catchup = batch.catchup AND k.next_tick = batch.tick RETURNING k.catchup, k.job, k.left_over),
history AS (
    INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)
    SELECT dropped.job, m.first_tick, now(), 0, j.revision, 5, m.reason, m.ticks, m.last_tick
      FROM dropped JOIN unnest($3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::integer[], $7::text[])
               AS m (catchup, first_tick, last_tick, ticks, reason) USING (catchup)
      JOIN jobs j ON j.job = dropped.job)
SELECT catchup, left_over FROM dropped
