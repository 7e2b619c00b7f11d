-- $1 digest, $2 id of the key, $3 how long it lasts
INSERT INTO sessions (digest, key, expires_at) VALUES ($1::bytea, $2::text, now() + $3::interval)
