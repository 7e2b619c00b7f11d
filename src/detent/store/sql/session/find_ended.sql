-- Which of these keys and sessions can no longer be used, also because their tenant is suspended, and whether the
-- cluster requires keys. A session of a person ends here also when it is due to be checked, and no request has done so:
-- the browser sends one then. `roles`: of each session in turn, what is bound to it now, as in session/find_key and
-- session/find_person. $1 ids of keys, $2 digests of sessions
SELECT ARRAY(SELECT given.id FROM unnest($1::text[]) AS given (id)
              WHERE NOT EXISTS (SELECT FROM api_keys k JOIN tenants t USING (tenant)
                                 WHERE k.id = given.id AND k.revoked_at IS NULL AND t.suspended_at IS NULL
                                   AND (k.expires_at > now() OR k.expires_at IS NULL))) AS keys,
       ARRAY(SELECT given.digest FROM unnest($2::bytea[]) AS given (digest)
              WHERE NOT EXISTS (SELECT FROM sessions s JOIN api_keys k ON k.id = s.key
                                  JOIN tenants t ON t.tenant = k.tenant
                                 WHERE s.digest = given.digest AND s.expires_at > now() AND k.revoked_at IS NULL
                                   AND t.suspended_at IS NULL
                                   AND (k.expires_at > now() OR k.expires_at IS NULL))
                AND NOT EXISTS (SELECT FROM sessions s JOIN tenants t ON t.tenant = s.tenant
                                 WHERE s.digest = given.digest AND s.expires_at > now() AND s.key IS NULL
                                   AND t.suspended_at IS NULL AND s.valid_until > now()
                                   AND s.check_at > now() - interval '30 seconds')) AS sessions,
       ARRAY(SELECT (SELECT json_agg(json_build_array(b.role, b.queue, b.tag) ORDER BY b.binding) FROM role_bindings b
                      WHERE b.tenant = coalesce(k.tenant, s.tenant)
                        AND CASE b.subject_kind WHEN 'key' THEN b.subject = s.key
                                 WHEN 'user' THEN s.key IS NULL AND b.subject IN (s.subject, s.email)
                                 ELSE s.key IS NULL AND b.subject = ANY (s.groups) END)::text
               FROM unnest($2::bytea[]) WITH ORDINALITY AS given (digest, place)
               LEFT JOIN sessions s ON s.digest = given.digest LEFT JOIN api_keys k ON k.id = s.key
              ORDER BY given.place) AS roles,
       EXISTS (SELECT FROM api_keys) AS keyed
