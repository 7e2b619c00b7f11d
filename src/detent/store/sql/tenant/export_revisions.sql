-- Former definitions of these jobs as rows of JSON, as export_runs. $1 jobs in their order, $2 limit; behind this key:
-- $3 job, $4 revision
SELECT r.job, r.revision AS serial, 'job_revisions' AS name, to_jsonb(r) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM job_revisions WHERE job = v.job AND (v.job > $3::bigint OR revision > $4::integer)
     ORDER BY revision LIMIT $2::integer) r LIMIT $2::integer
