-- How many partitions each node leads that has not left.
SELECT count(*)::integer AS led FROM partitions JOIN nodes ON node = holder AND NOT evicted GROUP BY holder
