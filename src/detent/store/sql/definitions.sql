-- The revisions some runs were fired with. Arrays: $1 job, $2 revision
SELECT v.job, v.revision, j.id, j.name, j.created_at, coalesce(r.definition, j.definition) AS definition
  FROM unnest($1::bigint[], $2::integer[]) AS v (job, revision)
  JOIN jobs j USING (job)
  LEFT JOIN job_revisions r ON r.job = v.job AND r.revision = v.revision AND j.revision <> v.revision
 WHERE j.revision = v.revision OR r.definition IS NOT NULL
