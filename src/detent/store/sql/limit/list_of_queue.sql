-- The limits a queue is subject to, in the order in which they are locked. $1 tenant, $2 name
SELECT number FROM limits WHERE tenant = $1::integer AND (queue IS NULL OR queue = $2::text) ORDER BY number
