-- Graceful hand-over, once our fires have answered. $1 me, $2 partitions, NULL for all
WITH p AS MATERIALIZED (
    SELECT partition FROM partitions WHERE holder = $1 AND ($2::smallint[] IS NULL OR partition = ANY ($2::smallint[]))
     ORDER BY partition FOR UPDATE)
UPDATE partitions t SET holder = NULL FROM p WHERE t.partition = p.partition RETURNING t.partition
