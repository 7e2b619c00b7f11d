-- Finished runs and ticks that did not run, in the form in which they are archived. $1 limit; after this key: $2 job,
-- $3 scheduled_at, $4 serial. Key and payload by their names in JSON: a partition that was detached before migration 21
-- does not have these columns.
SELECT h.job, h.scheduled_at, h.serial, (
    SELECT row_to_json(whole) FROM (
        SELECT run_id(h.job, h.scheduled_at, h.serial) AS id, t.name AS tenant, j.id AS job_id, j.name AS job,
               h.scheduled_at, CASE h.status WHEN 1 THEN 'succeeded' WHEN 2 THEN 'dead' WHEN 3 THEN 'cancelled' WHEN 4
               THEN 'skipped'
                    ELSE 'missed' END AS status,
               h.reason, h.attempt, h.token, h.node, h.started_at, h.finished_at, h.revision, h.ticks, h.until,
               h.result, to_jsonb(h) ->> 'key' AS concurrency_key, to_jsonb(h) -> 'payload' AS payload) whole
    )::text AS line
  FROM {name} h LEFT JOIN jobs j USING (job) LEFT JOIN tenants t USING (tenant)
 WHERE $2::bigint IS NULL OR (h.job, h.scheduled_at, h.serial) > ($2::bigint, $3::timestamptz, $4::integer)
 ORDER BY h.job, h.scheduled_at, h.serial LIMIT $1::integer
