-- $1 tenant, $2 id or NULL, $3 name or NULL, $4 limits of the caller or NULL. A name finds the job that has it now.
SELECT job, id FROM jobs WHERE tenant = $1::integer AND id = $2::uuid
   AND ($4::jsonb IS NULL OR within_limits(job, $4::jsonb))
UNION ALL
SELECT job, id FROM jobs WHERE tenant = $1::integer AND name = $3::text AND status <> 'deleted' AND $2::uuid IS NULL
   AND ($4::jsonb IS NULL OR within_limits(job, $4::jsonb))
