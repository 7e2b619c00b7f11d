-- A node returned runs of one that ended to their queues. $1 the one that ended, $2 the rescuer, $3 how many runs
INSERT INTO node_take_overs AS o (node, taker, runs, at)
SELECT f.node, $2, $3, now() FROM former_nodes f WHERE f.node = $1
ON CONFLICT (node, taker) DO UPDATE SET runs = o.runs + excluded.runs, at = excluded.at
