-- Revoke a key permanently; the time of the first revocation is kept. $1 tenant, $2 id
UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant = $1::integer AND id = $2::text RETURNING id
