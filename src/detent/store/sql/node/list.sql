-- Nodes that are alive or whose row is not deleted yet, oldest first, with what each leads and holds.
SELECT n.node, n.host, n.pid, n.address, n.roles, n.started_at, n.version, n.tzdata, n.clock_offset,
       n.circuits, now() - n.beat_at AS age, n.expires_at - now() AS remaining,
       CASE WHEN n.evicted OR n.expires_at <= now() THEN 'evicted' WHEN n.draining THEN 'draining'
           ELSE 'alive' END AS state,
       (SELECT count(*) FROM partitions p WHERE p.holder = n.node) AS partitions, coalesce(r.runs, 0) AS running
  FROM nodes n LEFT JOIN (SELECT owner, count(*) AS runs FROM live_runs WHERE owner > 0 GROUP BY owner) r ON r.owner
      = n.node
 ORDER BY n.started_at, n.node
