-- Cursors that fire soon. $1 partitions, $2 their lower bounds, $3 upper bound, $4 limit per partition.
-- The lower bound keeps the first load after a busy second from reading its dead index entries; a sweep passes
-- '-infinity' and finds registrations that committed late.
SELECT c.* FROM unnest($1::smallint[], $2::timestamptz[]) AS p (partition, lower_bound) CROSS JOIN LATERAL (
    SELECT job, next_tick, fire_at, generation, runs_left IS NOT NULL OR skips OR crowded
           OR key_limit IS NOT NULL OR key_rate IS NOT NULL AS bounded, queue, schedule,
           revision, grace, partition, priority, lanes, once, missed, max_missed
      FROM cursors
     WHERE partition = p.partition AND fire_at >= p.lower_bound AND fire_at <= $3 ORDER BY fire_at LIMIT $4) c
