-- Nodes that are gone and whose runs and partitions may still have to be taken over.
SELECT node FROM nodes WHERE evicted ORDER BY node
