-- Active jobs that differ only in their names. $1 job or NULL
SELECT count(*) AS jobs, (array_agg(name ORDER BY job))[1:3] AS names FROM jobs
 WHERE status = 'active' AND ($1::bigint IS NULL OR definition - 'name' = (SELECT definition - 'name' FROM jobs
  WHERE job = $1::bigint))
 GROUP BY tenant, md5((definition - 'name')::text) HAVING count(*) > 1 ORDER BY count(*) DESC LIMIT 5
