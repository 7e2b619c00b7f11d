-- The names before and after a name that no job has, along the index of names: what was meant often has the same
-- beginning, and a tenant with few jobs is read whole. $1 tenant, $2 name, $3 how many on each side, $4 limits of the
-- caller or NULL
SELECT name FROM (
    (SELECT job, name FROM jobs WHERE tenant = $1::integer AND name > $2::text AND status <> 'deleted'
      ORDER BY name LIMIT $3::integer)
    UNION ALL
    (SELECT job, name FROM jobs WHERE tenant = $1::integer AND name < $2::text AND status <> 'deleted'
      ORDER BY name DESC LIMIT $3::integer)) AS near
 WHERE $4::jsonb IS NULL OR within_limits(job, $4::jsonb)
