-- Nodes whose time ran out. Waits for their fires and claims, after which none can follow. An end too far ahead is
-- void: the clock stepped back. Rows are locked in one order, since several nodes may do this at once. Each is put on
-- record as lost, with how many partitions it led.
WITH n AS MATERIALIZED (
    SELECT node FROM nodes WHERE NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl)
     ORDER BY node FOR UPDATE),
e AS (
    UPDATE nodes t SET evicted = true FROM n
     WHERE t.node = n.node AND NOT t.evicted AND (t.expires_at < now() OR t.expires_at > now() + 2 * t.ttl) RETURNING t.*),
f AS (
    INSERT INTO former_nodes (node, host, pid, address, roles, version, tzdata, started_at, seen_at, lost, partitions)
    SELECT node, host, pid, address, roles, version, tzdata, started_at, beat_at, true,
           (SELECT count(*) FROM partitions p WHERE p.holder = e.node) FROM e
    ON CONFLICT (node) DO NOTHING)
SELECT node FROM e
