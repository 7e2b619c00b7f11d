-- What a node needs to know about the other nodes, in one row. $1 this node
SELECT ARRAY (SELECT node FROM nodes WHERE NOT evicted AND NOT draining AND 'scheduler' = ANY (roles)
 ORDER BY node) AS schedulers,
       ARRAY (SELECT node FROM nodes WHERE evicted ORDER BY node) AS evicted,
       coalesce((SELECT draining FROM nodes WHERE node = $1), false) AS draining,
       ARRAY (SELECT partition FROM partitions WHERE holder = $1 ORDER BY partition) AS held,
       ARRAY (SELECT p.partition FROM partitions p WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.node = p.holder
           AND NOT n.evicted)
               ORDER BY partition) AS free,
       EXISTS (SELECT FROM nodes WHERE NOT evicted AND (expires_at < now() OR expires_at > now() + 2 * ttl)) AS expired,
       (SELECT min(expires_at) FROM nodes WHERE NOT evicted AND node <> $1) - now() AS first_expiry,
       EXISTS (SELECT FROM nodes WHERE NOT evicted AND 'worker' = ANY (roles) AND NOT 'scheduler' = ANY (roles))
           AS others_work,
       EXISTS (SELECT FROM pull_workers WHERE seen_at > now() - interval '1 minute'
                  AND NOT starts_with(name, 'callback:')) AS programs_pull
