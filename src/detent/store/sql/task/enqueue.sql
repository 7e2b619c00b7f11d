-- Enqueue runs of a job. $1 job, $2 an array of documents as JSON, $3 whether payloads may refer to secrets, $4 the largest
-- payload in bytes where the tenant has no limit of its own
SELECT run, created, status, scheduled_at FROM enqueue_runs($1::bigint, $2::text::jsonb, $3::boolean, $4::bigint)
