-- Number of runs since $2 by bucket of lateness, in steps of $3. $1 tenant
SELECT date_bin($3::interval, minute, '2000-01-01T00:00:00Z') AS at, bucket, sum(runs)::bigint AS runs
  FROM run_minutes WHERE tenant = $1::integer AND minute >= $2::timestamptz AND bucket >= 0 GROUP BY 1, 2 ORDER BY 1, 2
