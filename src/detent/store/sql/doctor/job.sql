-- The jobs of this name or id, of all tenants. $1 name or id
SELECT j.job, j.id, j.name, j.status, j.reason, j.definition, j.updated_at, c.next_tick, c.fire_at
  FROM jobs j JOIN cursors c USING (job)
 WHERE (j.name = $1::text OR j.id::text = $1::text) AND j.status <> 'deleted' ORDER BY j.job
