-- One run of a task, waiting, live or finished. A tick has the payload of its job.
SELECT j.name, r.status, r.reason, r.scheduled_at, r.token, r.node, r.started_at, r.finished_at, r.result,
       coalesce(r.payload, j.definition -> 'payload')::text AS payload
  FROM {schema}.runs r
  JOIN {schema}.jobs j ON j.job = r.job
  JOIN {schema}.tenants t ON t.tenant = j.tenant
 WHERE r.job = %(job)s AND r.scheduled_at = %(scheduled_at)s AND r.serial = %(serial)s AND t.name = %(tenant)s
