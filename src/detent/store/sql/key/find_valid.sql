-- A key that is neither revoked nor expired, and the roles that are bound to it. $1 id
SELECT k.tenant, k.digest, k.scope, k.name, coalesce(k.last_used_at < now() - interval '5 minutes', true) AS unseen,
       (SELECT json_agg(json_build_array(b.role, b.queue, b.tag) ORDER BY b.binding) FROM role_bindings b
         WHERE b.subject_kind = 'key' AND b.subject = k.id AND b.tenant = k.tenant)::text AS bindings
  FROM api_keys k WHERE k.id = $1::text AND k.revoked_at IS NULL AND (k.expires_at > now() OR k.expires_at IS NULL)
