-- The same database after a fail-over: record its new timeline, and raise the incarnation. If several nodes
-- see the new timeline, only one does this. A second fail-over may lose this row; the seconds since 2020 keep an
-- incarnation from being used twice then, and where clocks differ, the largest incarnation that this process has seen.
-- No earlier membership remains valid (each process has to join again), so there are no leases to wait for.
-- $1 the timeline as it was read, $2 the largest incarnation that was seen
WITH raised AS (
UPDATE cluster c SET timeline = w.timeline, incarnation = greatest(c.incarnation + 1, $2::bigint + 1,
           least(extract(epoch FROM clock_timestamp() - timestamptz '2020-01-01 00:00+00')::bigint, 2000000000))
  FROM whereabouts w
 WHERE c.timeline = $1::integer AND w.timeline > c.timeline
   AND (c.system_identifier, c.database_oid, c.table_oid) = (w.system_identifier, w.database_oid, w.table_oid)
RETURNING c.incarnation),
n AS MATERIALIZED (SELECT n.node FROM nodes n, raised WHERE NOT n.evicted ORDER BY n.node FOR UPDATE OF n),
evicted_nodes AS (UPDATE nodes t SET evicted = true FROM n WHERE t.node = n.node)
SELECT incarnation FROM raised
