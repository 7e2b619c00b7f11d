-- Pulled runs over their time limit, whether or not their worker still sends heartbeats; columns as in pull/read_lease.
-- $1 limit
SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, r.revision, r.attempt, r.crashes, r.once, r.cancel,
       NULL AS payload, r.key AS concurrency_key, j.id,
       j.name, CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition,
       l.tenant, l.claimed_at
  FROM pull_leases l
  JOIN live_runs r ON r.job = l.job AND r.lane = l.lane AND r.token = l.token
  JOIN jobs j ON j.job = r.job
  LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
 WHERE l.ends_at <= now() LIMIT $1
