-- The distinct schedules and queues of the next $2 jobs after job $1, and the last of these jobs.
WITH page AS MATERIALIZED (SELECT job, schedule, queue FROM cursors WHERE job > $1::bigint ORDER BY job
 LIMIT $2::integer)
SELECT (SELECT max(job) FROM page) AS last, ARRAY(SELECT DISTINCT schedule FROM page) AS schedules,
       ARRAY(SELECT DISTINCT queue FROM page) AS queues
