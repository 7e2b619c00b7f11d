-- Record that a node ends: by a normal shutdown, or because it lost its membership. The first record of its end is
-- kept. $1 node, $2 lost
WITH left_node AS (UPDATE nodes SET evicted = true WHERE node = $1 RETURNING *),
former AS (
    INSERT INTO former_nodes (node, host, pid, address, roles, version, tzdata, started_at, seen_at, lost, partitions)
    SELECT node, host, pid, address, roles, version, tzdata, started_at, beat_at, $2::boolean,
           (SELECT count(*) FROM partitions p WHERE p.holder = left_node.node) FROM left_node
    ON CONFLICT (node) DO NOTHING)
SELECT node FROM left_node
