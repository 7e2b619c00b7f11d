-- Add the partitions for a row whose day has none. $1 the time of the row. All NULL: they exist already.
SELECT make_history_part('run_history', $1) AS runs, make_history_part('attempts', $1) AS attempts,
       make_history_part('run_logs', $1) AS logs
