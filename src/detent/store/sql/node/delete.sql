-- Delete an evicted node that owns nothing any more; its last heartbeat is kept, because it may have been the last node
-- of the cluster. A node whose end is not recorded yet (evicted by a fail-over, or by an older version) is recorded as
-- lost. $1 node
WITH deleted AS (
    DELETE FROM nodes n WHERE n.node = $1 AND n.evicted AND NOT EXISTS (SELECT FROM partitions WHERE holder = $1)
       AND NOT EXISTS (SELECT FROM live_runs WHERE owner = $1) RETURNING n.*),
former AS (
    INSERT INTO former_nodes (node, host, pid, address, roles, version, tzdata, started_at, seen_at, lost, partitions)
    SELECT node, host, pid, address, roles, version, tzdata, started_at, beat_at, true, 0 FROM deleted
    ON CONFLICT (node) DO NOTHING),
noted AS (UPDATE cluster SET beat_at = greatest(cluster.beat_at, deleted.beat_at) FROM deleted)
SELECT node FROM deleted
