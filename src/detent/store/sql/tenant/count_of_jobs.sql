-- How many rows of each table belong to these jobs. $1 jobs
SELECT 'jobs' AS name, cardinality($1::bigint[])::bigint AS rows
UNION ALL SELECT 'run_history', count(*) FROM run_history WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'attempts', count(*) FROM attempts WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'cursors', count(*) FROM cursors WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'job_revisions', count(*) FROM job_revisions WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'segments', count(*) FROM segments WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'skips', count(*) FROM skips WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'catchups', count(*) FROM catchups WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'run_payloads', count(*) FROM run_payloads WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'expectations', count(*) FROM expectations WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'set_aside', count(*) FROM set_aside WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'live_runs', count(*) FROM live_runs WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'incidents', count(*) FROM incidents WHERE job = ANY ($1::bigint[])
UNION ALL SELECT 'notices', count(*) FROM notices WHERE incident IN (
    SELECT incident FROM incidents WHERE job = ANY ($1::bigint[]))
