-- Record that a node returned the runs of an ended node to their queues. $1 the ended node, $2 the rescuer, $3 how many
-- runs
INSERT INTO node_take_overs AS o (node, taker, runs, at)
SELECT f.node, $2, $3, now() FROM former_nodes f WHERE f.node = $1
ON CONFLICT (node, taker) DO UPDATE SET runs = o.runs + excluded.runs, at = excluded.at
