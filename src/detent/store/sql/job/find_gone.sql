-- Of these jobs, those that are still as they were when their target answered 410 Gone: active, at the revision that
-- was called, and not resumed since the call. Arrays: $1 job, $2 revision, $3 when it was called
SELECT j.id, j.tenant, t.revision, t.called_at
  FROM unnest($1::bigint[], $2::integer[], $3::timestamptz[]) AS t (job, revision, called_at)
  JOIN jobs j ON j.job = t.job AND j.status = 'active' AND j.revision = t.revision
   AND (j.since IS NULL OR j.since <= t.called_at)
