-- The newest elections. A node takes many partitions in one statement, which is one row here. $1 limit
SELECT at, node, count(*) AS partitions FROM elections WHERE at > now() - interval '1 hour'
 GROUP BY at, node ORDER BY at DESC, node LIMIT $1
