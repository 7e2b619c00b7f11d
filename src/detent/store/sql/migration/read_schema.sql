-- Which database this is, the schema its connections use, and whether that schema exists.
SELECT current_database() AS database, host(inet_server_addr()) AS address, inet_server_port() AS port,
       current_setting('search_path') AS search_path, current_schema() IS NOT NULL AS present
