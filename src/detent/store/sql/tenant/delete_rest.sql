-- Delete some of what a tenant owns besides its jobs and keys. $1 tenant, $2 how many of the tables that can be large.
-- An incident can outlive its job.
WITH
gone_run_minutes AS (
    DELETE FROM run_minutes WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM run_minutes WHERE tenant = $1::integer LIMIT $2::integer))
    RETURNING tenant),
gone_requests AS (
    DELETE FROM requests WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM requests WHERE tenant = $1::integer LIMIT $2::integer))
    RETURNING tenant),
incident AS MATERIALIZED (SELECT incident FROM incidents WHERE tenant = $1::integer LIMIT $2::integer),
message AS MATERIALIZED (
    SELECT n.notice FROM alert_rules r JOIN notices n USING (rule) WHERE r.tenant = $1::integer LIMIT $2::integer),
gone_notices AS (
    DELETE FROM notices x WHERE x.incident IN (SELECT incident FROM incident)
        OR x.notice IN (SELECT notice FROM message) RETURNING x.notice),
gone_alerts AS (
    DELETE FROM alerts WHERE alert IN (SELECT alert FROM alerts WHERE tenant = $1::integer LIMIT $2::integer)
    RETURNING alert),
gone_incidents AS (
    DELETE FROM incidents x USING incident WHERE x.incident = incident.incident RETURNING x.incident),
gone_job_counts AS (DELETE FROM job_counts WHERE tenant = $1::integer RETURNING tenant),
gone_job_reservations AS (DELETE FROM job_reservations WHERE tenant = $1::integer RETURNING tenant),
gone_enqueue_grants AS (DELETE FROM enqueue_grants WHERE tenant = $1::integer RETURNING tenant),
gone_effect_marks AS (
    DELETE FROM effect_marks WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM effect_marks WHERE scope = -$1::bigint LIMIT $2::integer))
    RETURNING scope),
gone_key_places AS (                         -- of jobs that share the keys of their tenant
    DELETE FROM key_places WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM key_places WHERE scope = -$1::bigint LIMIT $2::integer))
    RETURNING scope),
gone_key_rates AS (
    DELETE FROM key_rates WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM key_rates WHERE scope = -$1::bigint LIMIT $2::integer))
    RETURNING scope),
gone_limits AS (DELETE FROM limits WHERE tenant = $1::integer RETURNING tenant),
gone_pull_leases AS (DELETE FROM pull_leases WHERE tenant = $1::integer RETURNING tenant),
gone_pull_workers AS (DELETE FROM pull_workers WHERE tenant = $1::integer RETURNING tenant),
gone_queues AS (DELETE FROM queues WHERE tenant = $1::integer RETURNING tenant),
gone_request_budgets AS (DELETE FROM request_budgets WHERE tenant = $1::integer RETURNING tenant),
gone_role_bindings AS (DELETE FROM role_bindings WHERE tenant = $1::integer RETURNING tenant),
gone_tenant_targets AS (DELETE FROM tenant_targets WHERE tenant = $1::integer RETURNING tenant)
SELECT 'run_minutes' AS name, count(*) AS rows FROM gone_run_minutes
UNION ALL SELECT 'requests', count(*) FROM gone_requests
UNION ALL SELECT 'notices', count(*) FROM gone_notices
UNION ALL SELECT 'incidents', count(*) FROM gone_incidents
UNION ALL SELECT 'alerts', count(*) FROM gone_alerts
UNION ALL SELECT 'job_counts', count(*) FROM gone_job_counts
UNION ALL SELECT 'job_reservations', count(*) FROM gone_job_reservations
UNION ALL SELECT 'enqueue_grants', count(*) FROM gone_enqueue_grants
UNION ALL SELECT 'effect_marks', count(*) FROM gone_effect_marks
UNION ALL SELECT 'key_places', count(*) FROM gone_key_places
UNION ALL SELECT 'key_rates', count(*) FROM gone_key_rates
UNION ALL SELECT 'limits', count(*) FROM gone_limits
UNION ALL SELECT 'pull_leases', count(*) FROM gone_pull_leases
UNION ALL SELECT 'pull_workers', count(*) FROM gone_pull_workers
UNION ALL SELECT 'queues', count(*) FROM gone_queues
UNION ALL SELECT 'request_budgets', count(*) FROM gone_request_budgets
UNION ALL SELECT 'role_bindings', count(*) FROM gone_role_bindings
UNION ALL SELECT 'tenant_targets', count(*) FROM gone_tenant_targets
