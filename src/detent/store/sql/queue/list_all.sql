-- Every queue with its tenant and the limits it is subject to, in the order in which they are locked; and whether
-- that tenant has jobs, in any queue: spare reservations count as jobs in the counter.
SELECT q.queue, q.tenant, q.name, q.needs, t.weight, ARRAY(
    SELECT l.number FROM limits l WHERE l.tenant = q.tenant AND (l.queue IS NULL OR l.queue = q.name)
     ORDER BY l.number) AS limits,
       c.jobs > coalesce((SELECT sum(r.jobs) FROM job_reservations r WHERE r.tenant = t.tenant AND r.spare), 0)
           AS has_jobs, t.suspended_at IS NOT NULL AS suspended
  FROM queues q JOIN tenants t USING (tenant) JOIN tenant_jobs c USING (tenant)
