-- The open circuits, on live nodes, of hosts that the tenant of a job calls, with the URL that the job calls. $1 job
SELECT COALESCE(j.definition::jsonb->'target'->>'url', j.definition::jsonb->'target'->>'broker_url') AS url,
       c->>'host' AS host, (c->>'port')::integer AS port,
       (c->>'opened_at')::timestamptz AS opened_at, (c->>'next_probe_at')::timestamptz AS next_probe_at,
       c->>'error' AS error
  FROM jobs j CROSS JOIN nodes n CROSS JOIN jsonb_array_elements(n.circuits) AS c
 WHERE j.job = $1 AND NOT n.evicted AND n.expires_at > now() AND (c->>'tenant')::integer = j.tenant
 ORDER BY next_probe_at
