-- Evict nodes whose time to live has passed. Waits for their fires and claims; after that they can make no others. An
-- expiry too far ahead is void: the clock stepped back. Rows are locked in one order, because several nodes may run
-- this concurrently. Each node is recorded as lost, with how many partitions it led.
WITH expired AS MATERIALIZED (
    SELECT node FROM nodes WHERE NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl)
     ORDER BY node FOR UPDATE),
evicted_nodes AS (
    UPDATE nodes t SET evicted = true FROM expired
     WHERE t.node = expired.node AND NOT t.evicted AND (t.expires_at < now() OR t.expires_at > now() + 2 * t.ttl)
         RETURNING t.*),
former AS (
    INSERT INTO former_nodes (node, host, pid, address, roles, version, tzdata, started_at, seen_at, lost, partitions)
    SELECT node, host, pid, address, roles, version, tzdata, started_at, beat_at, true,
           (SELECT count(*) FROM partitions p WHERE p.holder = evicted_nodes.node) FROM evicted_nodes
    ON CONFLICT (node) DO NOTHING)
SELECT node FROM evicted_nodes
