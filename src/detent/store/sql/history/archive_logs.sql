-- Chunks of lines in the form in which they are archived. $1 limit; after this key: $2 job, $3 scheduled_at, $4 serial,
-- $5 token, $6 part
SELECT h.job, h.scheduled_at, h.serial, h.token, h.part, (
    SELECT row_to_json(whole) FROM (
        SELECT run_id(h.job, h.scheduled_at, h.serial) AS run_id, t.name AS tenant, j.id AS job_id, j.name AS job,
               h.scheduled_at, h.attempt, h.token, h.first, h.last, h.lines::json AS lines) whole)::text AS line
  FROM {name} h LEFT JOIN jobs j USING (job) LEFT JOIN tenants t USING (tenant)
 WHERE $2::bigint IS NULL OR (h.job, h.scheduled_at, h.serial, h.token, h.part) > ($2::bigint, $3::timestamptz,
     $4::integer, $5::bigint, $6::smallint)
 ORDER BY h.job, h.scheduled_at, h.serial, h.token, h.part LIMIT $1::integer
