-- The newest elections: a node takes many partitions in one statement, which is one line. $1 limit
SELECT at, node, count(*) AS partitions FROM elections WHERE at > now() - interval '1 hour'
 GROUP BY at, node ORDER BY at DESC, node LIMIT $1
