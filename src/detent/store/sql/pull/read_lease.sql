-- The data for a decision about a pulled run. $1 tenant, $2 job, $3 scheduled_at, $4 serial, $5 token
SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, r.revision, r.attempt, r.crashes, r.once, r.cancel,
       NULL AS payload, r.key AS concurrency_key, j.id,
       j.name, CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition,
       l.tenant, l.claimed_at
  FROM pull_leases l
  JOIN live_runs r ON r.job = l.job AND r.lane = l.lane AND r.token = l.token
  JOIN jobs j ON j.job = r.job
  LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
 WHERE l.tenant = $1 AND l.job = $2 AND l.scheduled_at = $3 AND l.serial = $4 AND l.token = $5
