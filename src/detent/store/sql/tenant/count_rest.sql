-- How many rows of each table belong to a tenant and to none of its jobs. $1 tenant
SELECT 'run_minutes' AS name, count(*) AS rows FROM run_minutes WHERE tenant = $1::integer
UNION ALL SELECT 'requests', count(*) FROM requests WHERE tenant = $1::integer
UNION ALL SELECT 'incidents', count(*) FROM incidents i
           WHERE tenant = $1::integer AND NOT EXISTS (SELECT FROM jobs j WHERE j.job = i.job)
UNION ALL SELECT 'notices', (
           SELECT count(*) FROM incidents i JOIN notices USING (incident)
            WHERE tenant = $1::integer AND NOT EXISTS (SELECT FROM jobs j WHERE j.job = i.job))
         + (SELECT count(*) FROM alert_rules JOIN notices USING (rule) WHERE tenant = $1::integer)
UNION ALL SELECT 'alerts', count(*) FROM alerts WHERE tenant = $1::integer
UNION ALL SELECT 'alert_rules', count(*) FROM alert_rules WHERE tenant = $1::integer
UNION ALL SELECT 'job_counts', count(*) FROM job_counts WHERE tenant = $1::integer
UNION ALL SELECT 'job_reservations', count(*) FROM job_reservations WHERE tenant = $1::integer
UNION ALL SELECT 'enqueue_grants', count(*) FROM enqueue_grants WHERE tenant = $1::integer
UNION ALL SELECT 'effect_marks', count(*) FROM effect_marks WHERE scope = -$1::bigint
UNION ALL SELECT 'key_places', count(*) FROM key_places WHERE scope = -$1::bigint
UNION ALL SELECT 'key_rates', count(*) FROM key_rates WHERE scope = -$1::bigint
UNION ALL SELECT 'limits', count(*) FROM limits WHERE tenant = $1::integer
UNION ALL SELECT 'pull_leases', count(*) FROM pull_leases WHERE tenant = $1::integer
UNION ALL SELECT 'pull_workers', count(*) FROM pull_workers WHERE tenant = $1::integer
UNION ALL SELECT 'queues', count(*) FROM queues WHERE tenant = $1::integer
UNION ALL SELECT 'request_budgets', count(*) FROM request_budgets WHERE tenant = $1::integer
UNION ALL SELECT 'tenant_targets', count(*) FROM tenant_targets WHERE tenant = $1::integer
UNION ALL SELECT 'role_bindings', count(*) FROM role_bindings WHERE tenant = $1::integer
UNION ALL SELECT 'secret_versions', count(*) FROM secret_versions WHERE tenant = $1::integer
UNION ALL SELECT 'secrets', count(*) FROM secrets WHERE tenant = $1::integer
UNION ALL SELECT 'api_keys', count(*) FROM api_keys WHERE tenant = $1::integer
UNION ALL SELECT 'tenant_jobs', count(*) FROM tenant_jobs WHERE tenant = $1::integer
UNION ALL SELECT 'tenants', count(*) FROM tenants WHERE tenant = $1::integer
UNION ALL SELECT 'sessions', count(*) FROM sessions s LEFT JOIN api_keys k ON k.id = s.key
           WHERE coalesce(k.tenant, s.tenant) = $1::integer
