-- Schedules of ticks that are still to be caught up, and queues of runs that are not finished
SELECT ARRAY(SELECT DISTINCT schedule FROM catchups) AS schedules, ARRAY(SELECT DISTINCT queue FROM live_runs) AS queues
