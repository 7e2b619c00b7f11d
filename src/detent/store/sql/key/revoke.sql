-- Revoke a key permanently, and end its sessions; the time of the first revocation is kept, and `now` says whether it
-- is this one. $1 tenant, $2 id
WITH revoked AS (
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE tenant = $1::integer AND id = $2::text
    RETURNING id, revoked_at = now() AS now),
ended AS (DELETE FROM sessions s USING revoked WHERE s.key = revoked.id)
SELECT id, now FROM revoked
