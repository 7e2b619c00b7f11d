-- Partitions for the days to come. $1 how many days ahead
SELECT make_history_day(((now() AT TIME ZONE 'UTC')::date) + n) AS made FROM generate_series(0, $1::integer) AS n
 ORDER BY n
