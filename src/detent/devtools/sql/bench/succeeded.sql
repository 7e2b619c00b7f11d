-- How many runs that were due at $1 have succeeded.
SELECT count(*) FROM run_history WHERE scheduled_at = $1::timestamptz AND status = 1
