-- Keys that are neither revoked nor expired, those used last first. $1 limit
SELECT digest FROM api_keys WHERE revoked_at IS NULL AND (expires_at > now() OR expires_at IS NULL)
 ORDER BY last_used_at DESC NULLS LAST LIMIT $1::integer
