-- Which database this is, the schema its connections look in, and whether that schema is there.
SELECT current_database() AS database, host(inet_server_addr()) AS address, inet_server_port() AS port,
       current_setting('search_path') AS search_path, current_schema() IS NOT NULL AS present
