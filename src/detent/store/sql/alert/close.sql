-- An alert is over. $1 alert
WITH gone AS (DELETE FROM alert_jobs WHERE alert = $1::bigint)
UPDATE alerts SET closed_at = now() WHERE alert = $1::bigint AND closed_at IS NULL
