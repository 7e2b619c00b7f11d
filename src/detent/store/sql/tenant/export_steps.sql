-- Stored steps of the runs of these jobs as rows of JSON, as export_runs. $1 jobs in their order, $2 limit; behind this
-- key: $3 job, $4 scheduled_at, $5 serial, $6 number
SELECT s.job, s.scheduled_at AS at, s.serial, s.number AS token, 'run_steps' AS name, to_jsonb(s) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM run_steps WHERE job = v.job AND (v.job > $3::bigint
           OR (scheduled_at, serial, number) > ($4::timestamptz, $5::integer, $6::bigint))
     ORDER BY scheduled_at, serial, number LIMIT $2::integer) s LIMIT $2::integer
