-- Set the owner of these jobs: the app that defines them in its code, or the owner named when files are applied.
-- $1 jobs, $2 owner
UPDATE jobs SET owner = $2::text WHERE job = ANY ($1::bigint[])
