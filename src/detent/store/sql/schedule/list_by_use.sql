-- Schedules in the order of their numbers, and whether each is marked as unused. $1 after this one, $2 limit
SELECT schedule AS number, unused_since IS NOT NULL AS marked FROM schedules WHERE schedule > $1::integer
 ORDER BY schedule LIMIT $2::integer
