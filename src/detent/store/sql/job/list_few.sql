-- Jobs of a tenant, in no order. $1 tenant, $2 limit
SELECT job FROM jobs WHERE tenant = $1::integer LIMIT $2::integer
