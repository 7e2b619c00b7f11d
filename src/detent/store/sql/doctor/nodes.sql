-- Every node that the database knows, with the age of its last heartbeat.
SELECT n.node, n.host, n.pid, n.roles, n.version, n.tzdata, n.clock_offset, n.started_at, n.evicted, n.draining,
       extract(epoch FROM n.ttl)::float8 AS ttl, extract(epoch FROM clock_timestamp() - n.beat_at)::float8 AS age,
       NOT n.evicted AND n.expires_at > clock_timestamp() AS alive,
       (SELECT count(*) FROM partitions p WHERE p.holder = n.node) AS partitions,
       (SELECT count(*) FROM live_runs r WHERE r.owner = n.node) AS runs
  FROM nodes n ORDER BY n.started_at
