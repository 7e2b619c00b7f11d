-- Whether a job belongs to a tenant, which never changes, and is within the limits of the caller. $1 job, $2 tenant, $3
-- limits or NULL
SELECT job FROM jobs WHERE job = $1::bigint AND tenant = $2::integer
   AND ($3::jsonb IS NULL OR within_limits(job, $3::jsonb))
