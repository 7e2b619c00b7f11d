-- The nodes that may have a fire under way.
SELECT node FROM nodes WHERE NOT evicted AND 'scheduler' = ANY (roles) ORDER BY node
