-- The next tick of each job that has one within an hour: the instants with most of them, and how many in total.
SELECT fire_at, count(*) AS ticks, sum(count(*)) OVER ()::bigint AS total,
       sum(count(*)) FILTER (WHERE extract(second FROM fire_at) = 0) OVER ()::bigint AS on_the_minute
  FROM cursors WHERE fire_at >= now() AND fire_at < now() + interval '1 hour'
 GROUP BY fire_at ORDER BY ticks DESC LIMIT 5
