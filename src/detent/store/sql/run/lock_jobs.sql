-- First statement of a re-drive, as run/lock_job for several jobs, in the order of their key. $1 jobs, $2 tenant: a
-- request that names the jobs of another tenant locks nothing.
SELECT job FROM cursors c
 WHERE job = ANY ($1::bigint[]) AND EXISTS (SELECT FROM jobs j WHERE j.job = c.job AND j.tenant = $2::integer)
 ORDER BY job FOR NO KEY UPDATE
