-- Jobs of a tenant, in no order, and whether each is within the limits of the caller. $1 tenant, $2 limit, $3 limits or
-- NULL
SELECT job, $3::jsonb IS NULL OR within_limits(job, $3::jsonb) AS within
  FROM jobs WHERE tenant = $1::integer LIMIT $2::integer
