-- Every queue with its tenant and the limits it is subject to, in the order in which they are locked.
SELECT q.queue, q.tenant, q.name, q.needs, t.weight, ARRAY(
    SELECT l.number FROM limits l WHERE l.tenant = q.tenant AND (l.queue IS NULL OR l.queue = q.name)
     ORDER BY l.number) AS limits
  FROM queues q JOIN tenants t USING (tenant)
