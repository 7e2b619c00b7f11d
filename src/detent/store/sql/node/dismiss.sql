-- An operator acknowledges that a node was lost. $1 node
UPDATE former_nodes SET dismissed_at = coalesce(dismissed_at, now()) WHERE node = $1 AND lost RETURNING node
