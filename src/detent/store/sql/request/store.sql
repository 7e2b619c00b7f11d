-- Store the answer to a request, in the transaction that did the work; it replaces an expired one. $1 tenant, $2 key,
-- $3 digest of the request, $4 status, $5 headers, $6 body
INSERT INTO requests (tenant, key, digest, status, headers, body)
VALUES ($1::integer, $2::text, $3::bytea, $4::smallint, $5::text::jsonb, $6::bytea)
ON CONFLICT (tenant, key) DO UPDATE
   SET digest = excluded.digest, status = excluded.status, headers = excluded.headers, body = excluded.body,
   created_at = now()
