-- $1 tenant, $2 number
DELETE FROM role_bindings WHERE tenant = $1::integer AND binding = $2::bigint
RETURNING subject_kind, subject, role, queue, tag
