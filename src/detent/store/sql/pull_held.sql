-- What a decision about pulled runs is made from. Arrays: $2 job, $3 scheduled_at, $4 serial, $5 token; $1 tenant
SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, r.revision, r.attempt, r.crashes, r.once, r.cancel, j.id, j.name,
       CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition,
       l.tenant, l.claimed_at, l.ends_at
  FROM unnest($2::bigint[], $3::timestamptz[], $4::integer[], $5::bigint[]) AS v (job, scheduled_at, serial, token)
  JOIN pull_leases l ON l.job = v.job AND l.scheduled_at = v.scheduled_at AND l.serial = v.serial AND l.token = v.token
   AND l.tenant = $1
  JOIN live_runs r ON r.job = l.job AND r.lane = l.lane AND r.token = l.token
  JOIN jobs j ON j.job = r.job
  LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
