-- Payloads of runs that were triggered with one as rows of JSON, as export_runs. $1 jobs in their order, $2 limit;
-- behind this key: $3 job, $4 scheduled_at
SELECT p.job, p.scheduled_at AS at, 'run_payloads' AS name, to_jsonb(p) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM run_payloads WHERE job = v.job AND (v.job > $3::bigint OR scheduled_at > $4::timestamptz)
     ORDER BY scheduled_at LIMIT $2::integer) p LIMIT $2::integer
