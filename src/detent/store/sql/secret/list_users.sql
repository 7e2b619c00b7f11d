-- What refers to a secret: names of jobs, whether its tenant signs with it, whether its dead letters need it, and names
-- of alert rules. $1 tenant, $2 name, $3 limit
SELECT ARRAY(
    SELECT j.name FROM jobs j
     WHERE j.tenant = $1 AND j.secrets @> ARRAY[$2::text] AND j.status <> 'deleted'
     ORDER BY j.name LIMIT $3::integer) AS jobs,
       coalesce((SELECT t.signing = $2::text FROM tenants t WHERE t.tenant = $1), false) AS signs,
       coalesce((
           SELECT jsonb_path_exists(t.dead_letter_topic, '$.**.secret ? (@ == $name)',
                                    jsonb_build_object('name', $2::text))
             FROM tenants t WHERE t.tenant = $1), false) AS forwards,
       ARRAY(
    SELECT r.name FROM alert_rules r
     WHERE r.tenant = $1 AND jsonb_path_exists(r.definition, '$.receiver.*.secret ? (@ == $name)',
                                               jsonb_build_object('name', $2::text))
     ORDER BY r.name LIMIT $3::integer) AS rules
