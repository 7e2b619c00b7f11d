-- Cursors that have accounted for their ticks up to and including one. Arrays: $1 job, $2 tick
UPDATE cursors c SET last_tick = v.tick FROM unnest($1::bigint[], $2::timestamptz[]) AS v (job, tick)
 WHERE c.job = v.job AND (c.next_tick IS NULL OR c.next_tick > v.tick)
