-- Until when an accepted run waits for its callback. $1 job, $2 scheduled_at, $3 serial, $4 tenant
SELECT accepted_at, lease_until, ends_at, now() AS now FROM pull_leases
 WHERE job = $1 AND scheduled_at = $2 AND serial = $3 AND tenant = $4 AND accepted_at IS NOT NULL
