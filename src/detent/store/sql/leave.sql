-- A node that ends in good order. $1 node
UPDATE nodes SET evicted = true WHERE node = $1 RETURNING node
