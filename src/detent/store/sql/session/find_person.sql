-- The person of this session, if it has not ended, and their roles in its tenant. `due`: it is time to ask the provider
-- again. $1 digest
SELECT s.tenant, s.subject, s.name, s.email, s.groups, s.tokens, s.check_at <= now() AS due,
       (SELECT json_agg(json_build_array(b.role, b.queue, b.tag) ORDER BY b.binding) FROM role_bindings b
         WHERE b.tenant = s.tenant AND ((b.subject_kind = 'user' AND b.subject IN (s.subject, s.email))
            OR (b.subject_kind = 'group' AND b.subject = ANY (s.groups))))::text AS bindings
  FROM sessions s
 WHERE s.digest = $1::bytea AND s.expires_at > now() AND s.valid_until > now() AND s.key IS NULL
