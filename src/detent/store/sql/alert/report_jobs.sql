-- The events of an alert's jobs have been reported. $1 alert
UPDATE alert_jobs SET fresh = 0 WHERE alert = $1::bigint AND fresh > 0
