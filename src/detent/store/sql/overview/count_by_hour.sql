-- The outcomes of the newest runs of a job since $3, by hour. $1 job, $2 how many runs are read
SELECT date_trunc('hour', scheduled_at, 'UTC') AS at, status, sum(coalesce(ticks, 1))::bigint AS runs,
       count(*) AS looked_at
  FROM (SELECT scheduled_at, status, ticks FROM run_history
         WHERE job = $1::bigint AND scheduled_at >= $3::timestamptz ORDER BY scheduled_at DESC LIMIT $2::integer) h
 GROUP BY 1, 2 ORDER BY 1, 2
