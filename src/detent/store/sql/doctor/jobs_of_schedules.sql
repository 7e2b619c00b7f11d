-- Jobs that fire by one of some schedules, without those that are set aside already. $1 schedules, $2 limit
SELECT j.name, c.schedule FROM cursors c JOIN jobs j USING (job)
 WHERE c.schedule = ANY ($1::integer[]) AND j.status NOT IN ('deleted', 'completed')
   AND NOT EXISTS (SELECT FROM set_aside_jobs s WHERE s.job = c.job) ORDER BY j.job LIMIT $2::integer
