-- The newest nodes that ended within a day and no longer have a row in `nodes`, with the nodes that took over from
-- each. $1 limit
SELECT f.node, f.host, f.pid, f.address, f.roles, f.version, f.tzdata, f.started_at, f.seen_at, f.ended_at, f.lost,
       f.partitions, f.dismissed_at IS NOT NULL AS dismissed,
       ARRAY (SELECT taker FROM node_take_overs o WHERE o.node = f.node ORDER BY taker) AS takers,
       ARRAY (SELECT partitions FROM node_take_overs o WHERE o.node = f.node ORDER BY taker) AS taken_partitions,
       ARRAY (SELECT runs FROM node_take_overs o WHERE o.node = f.node ORDER BY taker) AS taken_runs,
       ARRAY (SELECT at FROM node_take_overs o WHERE o.node = f.node ORDER BY taker) AS taken_at
  FROM former_nodes f
 WHERE f.ended_at > now() - interval '1 day' AND NOT EXISTS (SELECT FROM nodes n WHERE n.node = f.node)
 ORDER BY f.ended_at DESC, f.node LIMIT $1
