-- The job that runs are enqueued of, by id or by name, with what decides whether they may be. `older`: a node whose
-- code does not know on-demand runs, which came with migration 21. $1 tenant, $2 id or NULL, $3 name or NULL, $4 limits
-- of the caller or NULL. Only a definition with a payload_schema is returned: most have none, and some are large.
SELECT j.job, j.name, q.name AS queue, j.tags, t.max_payload_bytes, now() AS now,
       o.node AS older, o.version AS older_version,
       CASE WHEN j.definition ? 'payload_schema' THEN j.definition::text END AS definition
  FROM jobs j
  JOIN cursors c USING (job)
  JOIN queues q ON q.queue = c.queue
  JOIN tenants t ON t.tenant = j.tenant
  LEFT JOIN LATERAL (
    SELECT node, version FROM nodes WHERE NOT evicted AND coalesce(knows, 0) < 21 ORDER BY node LIMIT 1) o ON true
 WHERE j.tenant = $1::integer AND j.status <> 'deleted' AND (j.id = $2::uuid OR $2::uuid IS NULL)
   AND (j.name = $3::text OR $3::text IS NULL) AND ($4::jsonb IS NULL OR within_limits(j.job, $4::jsonb))
