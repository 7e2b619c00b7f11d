-- The identity of this database as last recorded, its present identity, and how long ago the last heartbeat of any node
-- was.
SELECT c.id, c.incarnation, c.system_identifier, c.database_oid, c.table_oid, c.timeline,
       w.system_identifier AS present_system_identifier, w.database_oid AS present_database_oid,
       w.table_oid AS present_table_oid, w.timeline AS present_timeline,
       clock_timestamp() - greatest(c.beat_at, (SELECT max(beat_at) FROM nodes)) AS silence,
       EXISTS (SELECT FROM jobs) AS used
  FROM cluster c, whereabouts w
