-- $1 name. Locked until the change is made, so that two changes of different quotas both count.
SELECT t.tenant, t.max_jobs, t.max_payload_bytes, t.weight, l.max_concurrent, l.rate_per_second AS max_runs_per_second
  FROM tenants t LEFT JOIN limits l ON l.tenant = t.tenant AND l.queue IS NULL
 WHERE t.name = $1::text FOR NO KEY UPDATE OF t
