-- $1 id, $2 tenant, $3 digest, $4 scope, $5 name or NULL, $6 id of the key that makes it or NULL, $7 seconds until it
-- expires or NULL
INSERT INTO api_keys (id, tenant, digest, scope, name, created_by, expires_at)
VALUES ($1::text, $2::integer, $3::bytea, $4::text, $5::text, $6::text,
now() + $7::double precision * interval '1 second')
RETURNING number
