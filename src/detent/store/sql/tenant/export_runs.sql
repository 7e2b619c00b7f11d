-- Runs of these jobs, but those in the backlog, as rows of JSON, along the key: an index scan for each job, until there
-- are enough. $1 jobs in their order, $2 limit; behind this key: $3 job, $4 scheduled_at, $5 serial
SELECT r.job, r.scheduled_at AS at, r.serial, 'runs' AS name,
       to_jsonb(r) || jsonb_build_object('id', run_id(r.job, r.scheduled_at, r.serial)) AS row
  FROM unnest($1::bigint[]) AS v (job) CROSS JOIN LATERAL (
    SELECT * FROM runs WHERE job = v.job AND NOT waiting
       AND (v.job > $3::bigint OR (scheduled_at, serial) > ($4::timestamptz, $5::integer))
     ORDER BY scheduled_at, serial LIMIT $2::integer) r LIMIT $2::integer
