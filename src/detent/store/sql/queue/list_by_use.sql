-- Queues except the first, in the order of their numbers, and whether each is marked as unused; one with a limit counts
-- as used. $1 after this one, $2 limit
SELECT q.queue AS number, q.unused_since IS NOT NULL AS marked FROM queues q
 WHERE q.queue > greatest($1::integer, 1)
   AND (q.unused_since IS NOT NULL OR NOT EXISTS (SELECT FROM limits l WHERE l.tenant = q.tenant AND l.queue = q.name))
 ORDER BY q.queue LIMIT $2::integer
