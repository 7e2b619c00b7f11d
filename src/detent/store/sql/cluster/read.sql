-- The identity of this cluster's database, the time, and the server's version.
SELECT c.incarnation, c.id, clock_timestamp() AS at, current_setting('server_version_num')::integer AS server_version
  FROM cluster c
