-- Accepted runs whose target was silent for longer than its lease, locked until they are settled in the same
-- transaction: a concurrent heartbeat either comes before or is refused. Columns as in pull/read_lease. $1 limit, $2
-- how many to pass over. An expiry too far ahead is void, as in pull/rescue. Runs over their time limit are left to
-- pull/list_overdue.
SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, r.revision, r.attempt, r.crashes, r.once, r.cancel,
       NULL AS payload, r.key AS concurrency_key, j.id,
       j.name, CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition,
       l.tenant, l.claimed_at
  FROM pull_leases l
  JOIN live_runs r ON r.job = l.job AND r.lane = l.lane AND r.token = l.token AND r.owner = -l.worker
  JOIN jobs j ON j.job = r.job
  LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
 WHERE (l.lease_until < now() OR l.lease_until > now() + 2 * l.lease) AND l.ends_at > now()
   AND l.accepted_at IS NOT NULL
 ORDER BY l.job, l.scheduled_at, l.serial LIMIT $1 OFFSET $2 FOR UPDATE OF l SKIP LOCKED
