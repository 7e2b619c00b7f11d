-- Schedules of ticks that are still to be caught up with, and queues of runs that are not over
SELECT ARRAY(SELECT DISTINCT schedule FROM catchups) AS schedules, ARRAY(SELECT DISTINCT queue FROM live_runs) AS queues
