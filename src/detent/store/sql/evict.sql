-- Nodes whose time ran out. Waits for their fires and claims, after which none can follow. An end too far ahead is
-- void: the clock stepped back.
UPDATE nodes SET evicted = true
 WHERE NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl) RETURNING node
