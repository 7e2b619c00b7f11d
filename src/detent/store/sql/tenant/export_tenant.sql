-- What a tenant is, as rows of JSON: its limits, queues, allow list, and the names of its secrets. $1 tenant
SELECT 'tenants' AS name, to_jsonb(t) - 'deleted_rows' AS row FROM tenants t WHERE tenant = $1::integer
UNION ALL SELECT 'limits', to_jsonb(l) - 'tokens' - 'filled_at' FROM limits l WHERE tenant = $1::integer
UNION ALL SELECT 'queues', to_jsonb(q) FROM queues q WHERE tenant = $1::integer
UNION ALL SELECT 'tenant_targets', to_jsonb(p) FROM tenant_targets p WHERE tenant = $1::integer
UNION ALL SELECT 'alert_rules', to_jsonb(r) FROM alert_rules r WHERE tenant = $1::integer
UNION ALL SELECT 'secrets', to_jsonb(s) FROM secrets s WHERE tenant = $1::integer
