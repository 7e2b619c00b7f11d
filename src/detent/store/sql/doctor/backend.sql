-- The process that really serves this session.
SELECT pg_backend_pid() AS pid
