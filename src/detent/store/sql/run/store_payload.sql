-- The payload of a run that was triggered with one of its own. $1 job, $2 scheduled_at, $3 payload
INSERT INTO run_payloads (job, scheduled_at, payload) VALUES ($1::bigint, $2::timestamptz, $3::text::jsonb)
