-- A node whose code does not know this migration. $1 the migration
SELECT node, version FROM nodes WHERE NOT evicted AND coalesce(knows, 0) < $1::integer ORDER BY node LIMIT 1
