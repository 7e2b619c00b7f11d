-- A run whose target may report before its answer 202 was processed: its node still holds it. Columns as in
-- pull/read_lease. $1 tenant, $2 job, $3 scheduled_at, $4 serial, $5 token
SELECT r.job, r.lane, r.scheduled_at, r.serial, r.token, r.revision, r.attempt, r.crashes, r.once, r.cancel,
       NULL AS payload, r.key AS concurrency_key, j.id, j.name, d.definition, j.tenant,
       now() AS claimed_at
  FROM live_runs r
  JOIN jobs j ON j.job = r.job AND j.tenant = $1
  LEFT JOIN job_revisions o ON o.job = r.job AND o.revision = r.revision AND j.revision <> r.revision
 CROSS JOIN LATERAL (
    SELECT CASE WHEN j.revision = r.revision THEN j.definition ELSE o.definition END AS definition) d
 WHERE r.job = $2 AND (r.lane < 32768 OR r.lane = $4) AND r.scheduled_at = $3 AND r.serial = $4 AND r.token = $5
   AND r.owner > 0 AND d.definition->'target'->'callback' IS NOT NULL
