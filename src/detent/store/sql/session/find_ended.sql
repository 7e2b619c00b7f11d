-- Which of these keys and sessions can no longer be used, also because their tenant is suspended, and whether the
-- cluster requires keys. A session of a person ends here also when it is due to be checked, and no request has done so:
-- the browser sends one then. $1 ids of keys, $2 digests of sessions
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
       EXISTS (SELECT FROM api_keys) AS keyed
