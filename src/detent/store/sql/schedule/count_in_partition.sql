-- How many active jobs of a partition have each schedule. $1 partition
SELECT schedule, count(*) AS jobs FROM cursors WHERE partition = $1::smallint AND fire_at IS NOT NULL GROUP BY schedule
