-- What this database was when somebody last made sure of it, what it is now, and how long no node has been heard of.
SELECT c.id, c.incarnation, c.system_identifier, c.database_oid, c.table_oid, c.timeline,
       w.system_identifier AS present_system_identifier, w.database_oid AS present_database_oid,
       w.table_oid AS present_table_oid, w.timeline AS present_timeline,
       clock_timestamp() - greatest(c.beat_at, (SELECT max(beat_at) FROM nodes)) AS silence,
       EXISTS (SELECT FROM jobs) AS used
  FROM cluster c, whereabouts w
