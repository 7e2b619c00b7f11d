-- Cursors that have accounted for their ticks up to and including one. Arrays: $1 job, $2 tick
UPDATE cursors c SET last_tick = batch.tick FROM unnest($1::bigint[], $2::timestamptz[]) AS batch (job, tick)
 WHERE c.job = batch.job AND (c.next_tick IS NULL OR c.next_tick > batch.tick)
