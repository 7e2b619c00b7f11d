-- Whether a job belongs to a tenant, which never changes. $1 job, $2 tenant
SELECT job FROM jobs WHERE job = $1::bigint AND tenant = $2::integer
