-- An evicted node that owns nothing any more; its last heartbeat is kept, since it may have been the last of all. $1 node
WITH d AS (
    DELETE FROM nodes n WHERE n.node = $1 AND n.evicted AND NOT EXISTS (SELECT FROM partitions WHERE holder = $1)
       AND NOT EXISTS (SELECT FROM live_runs WHERE owner = $1) RETURNING node, beat_at),
c AS (UPDATE cluster SET beat_at = greatest(cluster.beat_at, d.beat_at) FROM d)
SELECT node FROM d
