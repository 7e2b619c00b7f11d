-- $1 tenant, $2 owner
SELECT name FROM jobs WHERE tenant = $1::integer AND owner = $2::text AND status <> 'deleted' ORDER BY name
