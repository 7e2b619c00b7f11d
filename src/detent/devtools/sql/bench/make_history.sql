-- Runs of the past, so that history is long: $1 of them, from the $4-th on, of $2 jobs from number $3 on, back from $5.
INSERT INTO run_history (job, scheduled_at, token, node, started_at, finished_at, serial, revision, attempt, status)
SELECT $3::bigint + n % $2::integer, at, 1 << 22 | 1, 1, at, at, 0, 1, 1, 1
  FROM generate_series($4::bigint, $4::bigint + $1::bigint - 1) AS n,
       LATERAL (SELECT $5::timestamptz - (n / $2::integer + 1) * interval '1 second' AS at) t
