-- Ask a node to hand over its partitions and take no new work, or cancel that request. $1 node, $2 which
UPDATE nodes SET draining = $2, draining_changed_at = CASE WHEN draining = $2 THEN draining_changed_at ELSE now() END
 WHERE node = $1 AND NOT evicted RETURNING node
