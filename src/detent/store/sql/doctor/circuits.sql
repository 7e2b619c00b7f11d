-- The open circuits on live nodes, those that opened first at the top: of which tenant, host and port, and by when.
SELECT (c->>'tenant')::integer AS tenant, c->>'host' AS host, (c->>'port')::integer AS port,
       (c->>'opened_at')::timestamptz AS opened_at, (c->>'next_probe_at')::timestamptz AS next_probe_at,
       c->>'error' AS error, now() AS now
  FROM nodes n CROSS JOIN jsonb_array_elements(n.circuits) AS c
 WHERE NOT n.evicted AND n.expires_at > now()
 ORDER BY opened_at, host, port
