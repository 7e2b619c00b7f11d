-- Sessions, of any role, that hold a snapshot for more than a minute, which keeps dead rows from being removed.
SELECT pid, coalesce(application_name, '') AS application, state, extract(epoch
  FROM now() - xact_start)::float8 AS seconds
  FROM pg_stat_activity WHERE backend_type = 'client backend' AND xact_start < now() - interval '1 minute'
   AND pid <> pg_backend_pid()
 ORDER BY xact_start LIMIT 5
