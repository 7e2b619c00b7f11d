-- Deleted jobs that have waiting runs again. $1 limit
SELECT c.job FROM cursors c JOIN jobs j ON j.job = c.job AND j.status = 'deleted'
 WHERE c.ended AND EXISTS (SELECT FROM live_runs r WHERE r.job = c.job AND r.owner IS NULL)
 ORDER BY c.job LIMIT $1::integer
