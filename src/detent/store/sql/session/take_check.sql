-- Check a session of a person, unless it is not due or another request does. $1 digest, $2 when the next may try
UPDATE sessions SET check_at = now() + $2::interval WHERE digest = $1::bytea AND key IS NULL AND check_at <= now()
RETURNING tokens
