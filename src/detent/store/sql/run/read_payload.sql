-- The payload a run was triggered with, if it has one of its own. $1 job, $2 scheduled_at
SELECT payload FROM run_payloads WHERE job = $1::bigint AND scheduled_at = $2::timestamptz
