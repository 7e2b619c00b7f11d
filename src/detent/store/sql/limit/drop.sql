-- $1 tenant, $2 queue name or NULL for the whole tenant
DELETE FROM limits WHERE tenant = $1::integer AND queue IS NOT DISTINCT FROM $2::text
