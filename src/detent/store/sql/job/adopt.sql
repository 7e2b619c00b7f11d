-- Who keeps these jobs: an app that has them in its code, or whoever applies them from files. $1 jobs, $2 owner
UPDATE jobs SET owner = $2::text WHERE job = ANY ($1::bigint[])
