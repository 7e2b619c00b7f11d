-- The revisions some runs were fired with. Arrays: $1 job, $2 revision (a single element applies to all)
SELECT v.job, v.revision, j.id, j.name, j.created_at, coalesce(r.definition, j.definition) AS definition, j.tenant
  FROM (SELECT job, CASE WHEN cardinality($2::integer[]) = 1 THEN ($2::integer[])[1] ELSE revision END AS revision
          FROM unnest($1::bigint[], $2::integer[]) AS t (job, revision)) v
  JOIN jobs j USING (job)
  LEFT JOIN job_revisions r ON r.job = v.job AND r.revision = v.revision AND j.revision <> v.revision
 WHERE j.revision = v.revision OR r.definition IS NOT NULL
