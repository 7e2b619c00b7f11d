-- Who this database is, and whether it is still the one it was.
SELECT c.incarnation, c.id, clock_timestamp() AS at, current_setting('server_version_num')::integer AS server_version
  FROM cluster c
