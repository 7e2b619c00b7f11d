-- How many runs ended since $2, in steps of $3, by status. $1 tenant
SELECT date_bin($3::interval, minute, '2000-01-01T00:00:00Z') AS at, status, sum(runs)::bigint AS runs
  FROM run_minutes WHERE tenant = $1::integer AND minute >= $2::timestamptz GROUP BY 1, 2 ORDER BY 1, 2
