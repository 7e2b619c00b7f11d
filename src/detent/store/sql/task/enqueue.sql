-- Enqueue runs of a job that the caller has checked: no limit of payloads, which may refer to secrets. $1 job, $2 an
-- array of documents as JSON
SELECT run, created, status, scheduled_at FROM enqueue_runs($1::bigint, $2::text::jsonb, true, 9223372036854775807)
