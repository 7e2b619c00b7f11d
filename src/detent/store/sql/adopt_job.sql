-- The app that registers this job in its code. $1 job, $2 owner
UPDATE jobs SET owner = $2::text WHERE job = $1::bigint
