-- First statement of a re-drive, as run/lock_job for several jobs, in the order of their key. $1 jobs, $2 tenant, $3
-- limits of the caller or NULL: a request that names jobs of another tenant, or beyond its limits, locks nothing.
SELECT job FROM cursors c
 WHERE job = ANY ($1::bigint[]) AND EXISTS (SELECT FROM jobs j WHERE j.job = c.job AND j.tenant = $2::integer)
   AND ($3::jsonb IS NULL OR within_limits(job, $3::jsonb))
 ORDER BY job FOR NO KEY UPDATE
