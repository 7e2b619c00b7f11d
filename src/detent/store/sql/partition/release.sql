-- Graceful hand-over, after this node's fires have answered. $1 this node, $2 partitions, NULL for all
WITH held AS MATERIALIZED (
    SELECT partition FROM partitions WHERE holder = $1 AND ($2::smallint[] IS NULL OR partition = ANY ($2::smallint[]))
     ORDER BY partition FOR UPDATE)
UPDATE partitions t SET holder = NULL FROM held WHERE t.partition = held.partition RETURNING t.partition
