-- Whether an on-demand run waits in the backlog. $1 job, $2 scheduled_at, $3 serial
SELECT job FROM backlog WHERE serial = $3::integer AND scheduled_at = $2::timestamptz AND job = $1::bigint
