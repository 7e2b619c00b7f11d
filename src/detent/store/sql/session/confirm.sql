-- The provider has confirmed the person. $1 digest, $2 name, $3 email, $4 groups, $5 tokens, $6 when to check it again,
-- $7 how long it lasts without a check
UPDATE sessions SET name = $2::text, email = $3::text, groups = $4::text[], tokens = $5::bytea,
       check_at = now() + $6::interval, valid_until = now() + $7::interval
 WHERE digest = $1::bytea AND key IS NULL
