-- Which revision of a job was in force at a time, if it is still kept. $1 job, $2 time
SELECT revision, changed_by, made_at FROM (
    SELECT revision, changed_by, coalesce(revised_at, created_at) AS made_at, NULL::timestamptz AS replaced_at
      FROM jobs WHERE job = $1::bigint
    UNION ALL
    SELECT r.revision, r.changed_by, coalesce(r.made_at, j.created_at), r.replaced_at
      FROM job_revisions r JOIN jobs j USING (job) WHERE r.job = $1::bigint) AS all_of_them
 WHERE made_at < $2::timestamptz AND (replaced_at IS NULL OR replaced_at >= $2::timestamptz) ORDER BY revision DESC
  LIMIT 1
