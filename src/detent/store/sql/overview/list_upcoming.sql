-- The next ticks of a tenant that has many jobs, found in each partition's part of the index. $1 tenant, $2 limit, $3
-- how many rows are read in each partition: jobs are spread evenly over 256 partitions, so few of the next ones share
-- one.
SELECT j.id, j.name, j.definition->>'timezone' AS timezone, j.target, d.next_tick, d.fire_at,
       d.skips AND EXISTS (SELECT FROM skips s WHERE s.job = d.job AND s.tick = d.next_tick) AS skipped FROM (
    SELECT c.* FROM generate_series(0, 255) AS p (partition) CROSS JOIN LATERAL (
        SELECT job, next_tick, fire_at, skips FROM cursors
         WHERE partition = p.partition AND fire_at > now() - interval '5 seconds'
           AND EXISTS (SELECT FROM jobs o WHERE o.job = cursors.job AND o.tenant = $1::integer)
         ORDER BY fire_at LIMIT $3::integer) c
     ORDER BY c.fire_at, c.job LIMIT $2::integer) d JOIN jobs j USING (job)
 ORDER BY d.fire_at, d.job
