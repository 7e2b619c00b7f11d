-- The fields that runs take from the revision of the job they were fired with. Arrays: $1 job, $2 revision
SELECT v.job, v.revision, j.id, j.name, j.created_at, d.definition->>'idempotency_key_template' AS template,
       d.definition->>'timezone' AS timezone
  FROM unnest($1::bigint[], $2::integer[]) AS v (job, revision)
  JOIN jobs j USING (job)
  LEFT JOIN job_revisions r ON r.job = v.job AND r.revision = v.revision AND j.revision <> v.revision
 CROSS JOIN LATERAL (SELECT coalesce(r.definition, j.definition) AS definition) d
