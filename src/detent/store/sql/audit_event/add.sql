-- $1 tenant or NULL, $2 to $5 kind, id, name and address of the actor, $6 action, $7 to $9 kind, id and name of its
-- object, $10 before and $11 after as JSON, $12 id of the request
INSERT INTO audit_events (tenant, tenant_name, actor_kind, actor_id, actor_name, address, action, object_kind,
       object_id, object_name, before, after, request_id)
VALUES ($1::integer, (SELECT t.name FROM tenants t WHERE t.tenant = $1::integer), $2::text, $3::text, $4::text,
       $5::text, $6::text, $7::text, $8::text, $9::text, $10::jsonb, $11::jsonb, $12::text)
