-- The numbers of some jobs of a tenant. $1 ids, $2 tenant
SELECT id, job FROM jobs WHERE id = ANY ($1::uuid[]) AND tenant = $2::integer
