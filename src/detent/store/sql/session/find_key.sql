-- The key of this session, if neither of them has ended. $1 digest
SELECT k.tenant, k.scope, k.name, k.id AS key FROM sessions s JOIN api_keys k ON k.id = s.key
 WHERE s.digest = $1::bytea AND s.expires_at > now() AND k.revoked_at IS NULL
   AND (k.expires_at > now() OR k.expires_at IS NULL)
