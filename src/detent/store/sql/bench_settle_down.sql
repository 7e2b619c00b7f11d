VACUUM (ANALYZE) cursors, jobs
