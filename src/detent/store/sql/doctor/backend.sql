-- The backend process that serves this session, also through a pooler.
SELECT pg_backend_pid() AS pid
