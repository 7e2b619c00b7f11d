-- $1 digest, $2 tenant, $3 subject, $4 name, $5 email, $6 groups, $7 tokens, $8 how long it lasts, $9 when to check it,
-- $10 how long it lasts without a check
INSERT INTO sessions (digest, tenant, subject, name, email, groups, tokens, expires_at, check_at, valid_until)
VALUES ($1::bytea, $2::integer, $3::text, $4::text, $5::text, $6::text[], $7::bytea, now() + $8::interval,
        now() + $9::interval, now() + $10::interval)
