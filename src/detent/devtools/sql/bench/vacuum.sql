VACUUM (ANALYZE) cursors, jobs, run_history
