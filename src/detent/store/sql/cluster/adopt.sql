-- Make this database, a copy, an original: a separate cluster with a higher incarnation. A database that is an original
-- already is not changed. An external coordinator knows the new cluster under another name and numbers its nominations
-- from the start. $1 the largest incarnation that was seen
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
