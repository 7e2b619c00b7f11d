-- Attempts of the runs of these jobs as rows of JSON, as export_runs. $1 jobs in their order, $2 limit; behind this
-- key: $3 job, $4 scheduled_at, $5 serial, $6 token
SELECT a.job, a.scheduled_at AS at, a.serial, a.token, 'attempts' AS name, to_jsonb(a) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM attempts WHERE job = v.job AND (v.job > $3::bigint
           OR (scheduled_at, serial, token) > ($4::timestamptz, $5::integer, $6::bigint))
     ORDER BY scheduled_at, serial, token LIMIT $2::integer) a LIMIT $2::integer
