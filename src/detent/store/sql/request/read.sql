-- The answer to a request that was served before. $1 tenant, $2 key, $3 how long answers are kept
SELECT digest, status, headers, body FROM requests
 WHERE tenant = $1::integer AND key = $2::text AND created_at > now() - $3::interval
