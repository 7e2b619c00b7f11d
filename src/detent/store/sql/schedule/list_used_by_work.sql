-- Schedules of ticks that are still to be caught up, and queues of runs that are not finished. Read as a whole, once a
-- day
SELECT ARRAY(SELECT DISTINCT schedule FROM catchups) AS schedules,
       ARRAY(SELECT queue FROM live_runs UNION SELECT queue FROM backlog) AS queues
