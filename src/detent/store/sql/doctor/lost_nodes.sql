-- The newest nodes that stopped answering within a day, with how much other nodes took over from each.
SELECT f.node, f.host, f.roles, f.seen_at, f.dismissed_at IS NOT NULL AS dismissed,
       coalesce(t.partitions, 0) AS partitions, coalesce(t.runs, 0) AS runs
  FROM former_nodes f LEFT JOIN LATERAL (
      SELECT sum(o.partitions) AS partitions, sum(o.runs) AS runs FROM node_take_overs o
       WHERE o.node = f.node) t ON true
 WHERE f.lost AND f.ended_at > now() - interval '1 day' AND NOT EXISTS (SELECT FROM nodes n WHERE n.node = f.node)
 ORDER BY f.ended_at DESC LIMIT 20
