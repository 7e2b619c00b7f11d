-- What refers to a secret: names of jobs, and whether its tenant signs with it. $1 tenant, $2 name, $3 limit
SELECT ARRAY(
    SELECT j.name FROM jobs j
     WHERE j.tenant = $1 AND j.secrets @> ARRAY[$2::text] AND j.status <> 'deleted'
     ORDER BY j.name LIMIT $3::integer) AS jobs,
       coalesce((SELECT t.signing = $2::text FROM tenants t WHERE t.tenant = $1), false) AS signs
