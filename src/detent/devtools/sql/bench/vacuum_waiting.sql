VACUUM (ANALYZE) backlog, cursors, jobs
