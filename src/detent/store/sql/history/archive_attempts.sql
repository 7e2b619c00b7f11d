-- Attempts in the form in which they are archived. $1 limit; after this key: $2 job, $3 scheduled_at, $4 serial, $5
-- token
SELECT h.job, h.scheduled_at, h.serial, h.token, (
    SELECT row_to_json(whole) FROM (
        SELECT run_id(h.job, h.scheduled_at, h.serial) AS run_id, t.name AS tenant, j.id AS job_id, j.name AS job,
               h.scheduled_at, h.attempt, h.token, h.node, h.started_at, h.finished_at, h.outcome,
               h.error) whole)::text AS line
  FROM {name} h LEFT JOIN jobs j USING (job) LEFT JOIN tenants t USING (tenant)
 WHERE $2::bigint IS NULL OR (h.job, h.scheduled_at, h.serial, h.token) > ($2::bigint, $3::timestamptz, $4::integer,
     $5::bigint)
 ORDER BY h.job, h.scheduled_at, h.serial, h.token LIMIT $1::integer
