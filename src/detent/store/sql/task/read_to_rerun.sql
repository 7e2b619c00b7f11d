-- The payload of a finished on-demand run, and the definition of its job if that has a payload_schema. $1 job, $2
-- scheduled_at, $3 serial. No payload: that of the job.
SELECT CASE WHEN j.definition ? 'payload_schema' THEN j.definition::text END AS definition, h.payload::text AS payload
  FROM run_history h JOIN jobs j USING (job)
 WHERE h.job = $1::bigint AND h.scheduled_at = $2::timestamptz AND h.serial = $3::integer
