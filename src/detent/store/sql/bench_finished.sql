SELECT count(*) FROM run_history
