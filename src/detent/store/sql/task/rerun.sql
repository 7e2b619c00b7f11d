-- Enqueue a finished on-demand run once more, due now, with what it was given and the job's current definition. $1 job,
-- $2 scheduled_at, $3 serial. Nothing returned: there is no such run, or its job is deleted.
INSERT INTO backlog AS b (job, scheduled_at, not_before, token, serial, queue, revision, priority, once, keyed, wakes,
                          key, payload)
SELECT h.job, t.at, t.at, (SELECT incarnation FROM cluster) << 22 | 1, nextval('on_demand_serials')::integer,
       on_demand_queue(j.tenant, c.queue, NULL), c.revision, c.priority, c.once, h.key IS NOT NULL, true, h.key,
       h.payload
  FROM run_history h JOIN jobs j ON j.job = h.job AND j.status <> 'deleted' JOIN cursors c ON c.job = h.job
 CROSS JOIN (SELECT date_trunc('milliseconds', now()) AS at) t
 WHERE h.job = $1::bigint AND h.scheduled_at = $2::timestamptz AND h.serial = $3::integer
RETURNING b.job, b.scheduled_at, b.serial, b.queue
