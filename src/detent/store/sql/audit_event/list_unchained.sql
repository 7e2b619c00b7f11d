-- Events that are not in the chain yet, in the order in which they are chained. $1 limit
SELECT id, at, tenant, tenant_name, actor_kind, actor_id, actor_name, address, action, object_kind, object_id,
       object_name, before, after, request_id, position, previous_hash, hash
  FROM audit_events WHERE position IS NULL ORDER BY id LIMIT $1::integer
