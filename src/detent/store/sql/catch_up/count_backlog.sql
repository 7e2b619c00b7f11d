-- How many ticks of a tenant are still to be caught up, and of how many jobs. $1 tenant
SELECT coalesce(sum(c.left_over), 0)::bigint AS ticks, count(DISTINCT c.job) AS jobs
  FROM catchups c WHERE EXISTS (SELECT FROM jobs j WHERE j.job = c.job AND j.tenant = $1::integer)
