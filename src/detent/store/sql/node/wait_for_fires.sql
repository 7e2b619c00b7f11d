-- Wait for the transactions in which node $1 fires ticks: each holds a lock on the row of its node until it ends.
SELECT node FROM nodes WHERE node = $1 FOR UPDATE
