-- Jobs that fire by one of some schedules. $1 schedules, $2 limit
SELECT j.name, c.schedule FROM cursors c JOIN jobs j USING (job)
 WHERE c.schedule = ANY ($1::integer[]) AND j.status NOT IN ('deleted', 'completed') ORDER BY j.job LIMIT $2::integer
