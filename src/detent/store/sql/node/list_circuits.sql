-- The open circuits of a host that a tenant calls, of all live nodes. $1 tenant, $2 host, $3 port
SELECT (c->>'opened_at')::timestamptz AS opened_at, (c->>'next_probe_at')::timestamptz AS next_probe_at,
       c->>'error' AS error
  FROM nodes n CROSS JOIN jsonb_array_elements(n.circuits) AS c
 WHERE NOT n.evicted AND n.expires_at > now() AND (c->>'tenant')::integer = $1 AND c->>'host' = $2
   AND (c->>'port')::integer = $3
 ORDER BY next_probe_at
