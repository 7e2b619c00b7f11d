-- A session lasts no longer than its key. $1 digest, $2 id of the key, $3 how long it lasts
INSERT INTO sessions (digest, key, expires_at)
SELECT $1::bytea, k.id, least(now() + $3::interval, k.expires_at) FROM api_keys k WHERE k.id = $2::text
