-- Make this database, a copy, an original of its own: another cluster with a higher incarnation. Nothing happens to one
-- that is an original already. An outside coordinator knows the new cluster under another name and counts its
-- nominations anew. $1 the largest incarnation that was seen
WITH adopted AS (
    UPDATE cluster c SET system_identifier = w.system_identifier, database_oid = w.database_oid,
           table_oid = w.table_oid, timeline = w.timeline, id = gen_random_uuid(),
           incarnation = greatest(c.incarnation + 1, $1::bigint + 1,
               least(extract(epoch FROM clock_timestamp() - timestamptz '2020-01-01 00:00+00')::bigint, 2000000000))
      FROM whereabouts w
     WHERE (c.system_identifier, c.database_oid, c.table_oid, c.timeline)
           IS DISTINCT FROM (w.system_identifier, w.database_oid, w.table_oid, w.timeline)
    RETURNING c.incarnation),
anew AS (UPDATE partitions SET nomination = 0 WHERE EXISTS (SELECT FROM adopted))
SELECT incarnation FROM adopted
