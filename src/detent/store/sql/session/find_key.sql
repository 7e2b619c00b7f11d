-- The key of this session, if neither of them has ended, and the roles that are bound to it. $1 digest
SELECT k.tenant, k.scope, k.name, k.id AS key,
       (SELECT json_agg(json_build_array(b.role, b.queue, b.tag) ORDER BY b.binding) FROM role_bindings b
         WHERE b.subject_kind = 'key' AND b.subject = k.id AND b.tenant = k.tenant)::text AS bindings
  FROM sessions s JOIN api_keys k ON k.id = s.key
 WHERE s.digest = $1::bytea AND s.expires_at > now() AND k.revoked_at IS NULL
   AND (k.expires_at > now() OR k.expires_at IS NULL)
