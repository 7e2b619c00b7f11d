-- Nothing returned: it exists already. $1 tenant, $2 kind of subject, $3 subject, $4 role, $5 queue or NULL, $6 tag or
-- NULL, $7 who
INSERT INTO role_bindings (tenant, subject_kind, subject, role, queue, tag, created_by)
VALUES ($1::integer, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)
ON CONFLICT DO NOTHING RETURNING binding
