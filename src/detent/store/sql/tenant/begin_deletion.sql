-- From here on upkeep deletes the tenant. Its keys are revoked first, and all sessions end. $1 tenant, $2 by whom.
-- Returns how many keys were valid.
WITH marked AS (
    UPDATE tenants SET deleting_at = now(), deleting_by = $2::text, deleted_rows = '{}' WHERE tenant = $1::integer),
valid AS MATERIALIZED (
    SELECT id FROM api_keys WHERE tenant = $1::integer AND revoked_at IS NULL AND (expires_at > now()) IS NOT false),
ended AS (
    DELETE FROM sessions s
     WHERE s.tenant = $1::integer OR s.key IN (SELECT id FROM api_keys WHERE tenant = $1::integer)),
revoked AS (
    UPDATE api_keys SET revoked_at = now() WHERE tenant = $1::integer AND revoked_at IS NULL)
SELECT count(*) AS keys FROM valid
