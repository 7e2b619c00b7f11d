-- Add the partition for a row that has none. $1 its time. Both NULL: it has one.
SELECT make_history_part('run_history', $1) AS runs, make_history_part('attempts', $1) AS attempts
