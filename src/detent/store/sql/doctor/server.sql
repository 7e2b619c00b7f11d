-- The server's version and limits, and how much of the limits is in use.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       clock_timestamp() AS at, current_user AS role, pg_is_in_recovery() AS standby,
       current_setting('max_connections')::integer AS max_connections,
       current_setting('superuser_reserved_connections')::integer
         + coalesce(current_setting('reserved_connections', true), '0')::integer AS reserved,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS role_limit,
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database_limit,
       current_setting('plan_cache_mode') AS plan_cache_mode,
       current_setting('random_page_cost')::float8 AS random_page_cost, current_setting('jit')::boolean AS jit
