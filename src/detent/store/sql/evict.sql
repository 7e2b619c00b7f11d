-- Nodes whose time ran out. Waits for their fires and claims, after which none can follow. An end too far ahead is
-- void: the clock stepped back. Rows are locked in one order, since several nodes may do this at once.
WITH n AS MATERIALIZED (
    SELECT node FROM nodes WHERE NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl)
     ORDER BY node FOR UPDATE)
UPDATE nodes t SET evicted = true FROM n
 WHERE t.node = n.node AND NOT t.evicted AND (t.expires_at < now() OR t.expires_at > now() + 2 * t.ttl) RETURNING t.node
