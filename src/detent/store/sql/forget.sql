-- An evicted node that owns nothing any more. $1 node
DELETE FROM nodes n WHERE n.node = $1 AND n.evicted AND NOT EXISTS (SELECT FROM partitions WHERE holder = $1)
   AND NOT EXISTS (SELECT FROM live_runs WHERE owner = $1) RETURNING node
