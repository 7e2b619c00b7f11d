-- Jobs of a tenant with an id from $2 to $3, which a beginning of an id stands for. $1 tenant, $4 limit, $5 limits of
-- the caller or NULL
SELECT id, name FROM jobs
 WHERE id BETWEEN $2::uuid AND $3::uuid AND tenant = $1::integer AND status <> 'deleted'
   AND ($5::jsonb IS NULL OR within_limits(job, $5::jsonb))
 ORDER BY id LIMIT $4::integer
