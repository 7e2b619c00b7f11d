-- All jobs of a tenant, also deleted ones, some at a time. $1 tenant, $2 after this job, $3 limit
SELECT job FROM jobs WHERE tenant = $1::integer AND job > $2::bigint ORDER BY job LIMIT $3::integer
