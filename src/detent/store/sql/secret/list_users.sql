-- What refers to a secret: names of jobs, whether its tenant signs with it, and whether its dead letters need it.
-- $1 tenant, $2 name, $3 limit
SELECT ARRAY(
    SELECT j.name FROM jobs j
     WHERE j.tenant = $1 AND j.secrets @> ARRAY[$2::text] AND j.status <> 'deleted'
     ORDER BY j.name LIMIT $3::integer) AS jobs,
       coalesce((SELECT t.signing = $2::text FROM tenants t WHERE t.tenant = $1), false) AS signs,
       coalesce((
           SELECT jsonb_path_exists(t.dead_letter_topic, '$.**.secret ? (@ == $name)',
                                    jsonb_build_object('name', $2::text))
             FROM tenants t WHERE t.tenant = $1), false) AS forwards
