-- Chunks of lines of the runs of these jobs as rows of JSON, as export_runs. $1 jobs in their order, $2 limit; behind
-- this key: $3 job, $4 scheduled_at, $5 serial, $6 token, $7 part
SELECT l.job, l.scheduled_at AS at, l.serial, l.token, l.part AS chunk, 'run_logs' AS name, to_jsonb(l) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM run_logs WHERE job = v.job AND (v.job > $3::bigint
           OR (scheduled_at, serial, token, part) > ($4::timestamptz, $5::integer, $6::bigint, $7::smallint))
     ORDER BY scheduled_at, serial, token, part LIMIT $2::integer) l LIMIT $2::integer
