-- Which node led a partition at a time. $1 partition, $2 time
SELECT node, term, at FROM elections WHERE partition = $1::smallint AND at <= $2::timestamptz ORDER BY term DESC LIMIT 1
