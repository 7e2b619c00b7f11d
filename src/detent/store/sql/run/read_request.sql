-- The input of a run: the definition it was fired with, and a payload of its own if it has one. $1 job, $2
-- scheduled_at, $3 serial, $4 tenant, $5 limits of the caller or NULL. Versions before on-demand runs kept payloads in
-- run_payloads.
SELECT coalesce(r.definition, j.definition) AS definition, coalesce(v.payload, p.payload) AS own_payload, v.revision
  FROM runs v JOIN jobs j USING (job)
  LEFT JOIN job_revisions r ON r.job = v.job AND r.revision = v.revision AND j.revision <> v.revision
  LEFT JOIN run_payloads p ON p.job = v.job AND p.scheduled_at = v.scheduled_at AND v.serial < 201326592
 WHERE v.job = $1::bigint AND v.scheduled_at = $2::timestamptz AND v.serial = $3::integer AND j.tenant = $4::integer
   AND ($5::jsonb IS NULL OR within_limits(v.job, $5::jsonb))
