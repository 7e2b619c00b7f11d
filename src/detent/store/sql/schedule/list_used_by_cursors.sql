-- Schedules and queues that some jobs have now, in the order of jobs. $1 after this job, $2 how many jobs
WITH page AS MATERIALIZED (SELECT job, schedule, queue FROM cursors WHERE job > $1::bigint ORDER BY job
 LIMIT $2::integer)
SELECT (SELECT max(job) FROM page) AS last, ARRAY(SELECT DISTINCT schedule FROM page) AS schedules,
       ARRAY(SELECT DISTINCT queue FROM page) AS queues
