-- Jobs that have no cursor, or whose cursor has no schedule: nothing can fire them. $1 job or NULL, $2 limit
SELECT j.name FROM jobs j LEFT JOIN cursors c USING (job)
 WHERE j.status NOT IN ('deleted', 'completed') AND ($1::bigint IS NULL OR j.job = $1::bigint)
   AND NOT EXISTS (SELECT FROM schedules s WHERE s.schedule = c.schedule) ORDER BY j.job LIMIT $2::integer
