-- The next ticks of a tenant that has few jobs. $1 tenant, $2 limit
SELECT j.id, j.name, j.definition->>'timezone' AS timezone, j.target, c.next_tick, c.fire_at,
       c.skips AND EXISTS (SELECT FROM skips s WHERE s.job = c.job AND s.tick = c.next_tick) AS skipped
  FROM jobs j JOIN cursors c USING (job)
 WHERE j.tenant = $1::integer AND j.status = 'active' AND c.fire_at > now() - interval '5 seconds'
 ORDER BY c.fire_at, c.job LIMIT $2::integer
