-- Schedules of ticks that are still to be caught up with
SELECT ARRAY(SELECT DISTINCT schedule FROM catchups) AS schedules
