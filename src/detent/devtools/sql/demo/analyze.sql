ANALYZE run_history, attempts, jobs, cursors
