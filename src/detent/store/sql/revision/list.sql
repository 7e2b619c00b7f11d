-- The definitions a job has had, the current one first. $1 job, $2 only those below this number (NULL: all), $3 limit
SELECT * FROM (
    SELECT revision, definition, changed_by, coalesce(revised_at, created_at) AS made_at,
           NULL::timestamptz AS replaced_at
      FROM jobs WHERE job = $1::bigint
    UNION ALL
    SELECT r.revision, r.definition, r.changed_by, coalesce(r.made_at, j.created_at), r.replaced_at
      FROM job_revisions r JOIN jobs j USING (job) WHERE r.job = $1::bigint) AS all_of_them
 WHERE revision < $2::bigint OR $2::bigint IS NULL
 ORDER BY revision DESC LIMIT $3::integer
