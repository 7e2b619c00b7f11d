-- Wait until the fires that a node has begun have finished, or their transactions have ended. $1 node
SELECT node FROM nodes WHERE node = $1 FOR UPDATE
