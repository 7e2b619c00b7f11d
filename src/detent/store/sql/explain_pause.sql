-- Another reason for a pause that is on already. $1 job, $2 reason
UPDATE jobs SET reason = $2::text, updated_at = now() WHERE job = $1::bigint AND status = 'paused'
