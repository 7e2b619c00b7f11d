-- A key that is neither revoked nor expired. $1 id
SELECT tenant, digest, scope, name, coalesce(last_used_at < now() - interval '5 minutes', true) AS unseen
  FROM api_keys WHERE id = $1::text AND revoked_at IS NULL AND (expires_at > now() OR expires_at IS NULL)
