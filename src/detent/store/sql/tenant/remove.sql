-- Delete a tenant that owns nothing but keys, secrets and alert rules any more. In one statement, because a tenant
-- refers to its signing secret. Sessions go with their keys; a job that is there after all makes it fail. $1 tenant
WITH gone_secret_versions AS (DELETE FROM secret_versions WHERE tenant = $1::integer),
gone_alert_rules AS (DELETE FROM alert_rules WHERE tenant = $1::integer),
gone_secrets AS (DELETE FROM secrets WHERE tenant = $1::integer),
gone_api_keys AS (DELETE FROM api_keys WHERE tenant = $1::integer),
gone_tenant_jobs AS (DELETE FROM tenant_jobs WHERE tenant = $1::integer)
DELETE FROM tenants WHERE tenant = $1::integer AND deleting_at IS NOT NULL
