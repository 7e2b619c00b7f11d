-- Nodes that are alive or not yet forgotten, from the oldest on, and how many partitions each holds.
SELECT n.node, n.host, n.roles, n.started_at, n.version, n.tzdata, n.clock_offset, now() - n.beat_at AS age,
       NOT n.evicted AND n.expires_at > now() AS alive,
       (SELECT count(*) FROM partitions p WHERE p.holder = n.node) AS partitions
  FROM nodes n ORDER BY n.started_at, n.node
