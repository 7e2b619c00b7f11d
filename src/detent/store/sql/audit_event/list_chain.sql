-- Events in the order of the chain. $1 after this position, $2 limit
SELECT id, at, tenant, tenant_name, actor_kind, actor_id, actor_name, address, action, object_kind, object_id,
       object_name, before, after, request_id, position, previous_hash, hash
  FROM audit_events WHERE position > $1::bigint ORDER BY position LIMIT $2::integer
