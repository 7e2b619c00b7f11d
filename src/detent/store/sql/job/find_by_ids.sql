-- The numbers of those jobs that belong to a tenant and are in one of these states. $1 tenant, $2 states, $3 ids, $4
-- after this number, $5 limit, $6 limits of the caller or NULL
SELECT job FROM jobs
 WHERE id = ANY ($3::uuid[]) AND tenant = $1::integer AND status = ANY ($2::text[]) AND job > $4::bigint
   AND ($6::jsonb IS NULL OR within_limits(job, $6::jsonb))
 ORDER BY job LIMIT $5::integer
