-- Schedules as they are stored, the newest first. $1 the job whose schedule is wanted, or NULL for all, $2 limit
SELECT s.schedule, s.stored FROM schedules s
 WHERE $1::bigint IS NULL OR s.schedule = (SELECT c.schedule FROM cursors c WHERE c.job = $1::bigint)
 ORDER BY s.schedule DESC LIMIT $2::integer
