-- The dead runs of a tenant that waited longest and whose jobs are still there. $1 tenant, $2 job or NULL, $3 limit
SELECT h.job, h.scheduled_at, h.serial FROM run_history h
 WHERE h.status = 2 AND ($2::bigint IS NULL OR h.job = $2::bigint)
   AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer AND j.status <> 'deleted')
 ORDER BY h.scheduled_at, h.job, h.serial LIMIT $3::integer
