-- Delete jobs without unfinished runs, and what belongs to them but their history, which is deleted before. $1 jobs
WITH gone AS MATERIALIZED (
    SELECT job FROM jobs j WHERE job = ANY ($1::bigint[]) AND status = 'deleted'
       AND NOT EXISTS (SELECT FROM live_runs r WHERE r.job = j.job)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND NOT b.parked)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = j.job AND b.parked) ORDER BY job FOR UPDATE),
incident AS MATERIALIZED (SELECT incident FROM incidents WHERE job IN (SELECT job FROM gone)),
gone_notices AS (
    DELETE FROM notices x USING incident WHERE x.incident = incident.incident RETURNING x.incident),
gone_incidents AS (
    DELETE FROM incidents x USING incident WHERE x.incident = incident.incident RETURNING x.incident),
gone_cursors AS (DELETE FROM cursors x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_job_revisions AS (DELETE FROM job_revisions x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_segments AS (DELETE FROM segments x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_skips AS (DELETE FROM skips x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_catchups AS (DELETE FROM catchups x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_run_payloads AS (DELETE FROM run_payloads x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_dead_letters AS (DELETE FROM dead_letters x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_alert_events AS (DELETE FROM alert_events x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_alert_jobs AS (DELETE FROM alert_jobs x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_expectations AS (DELETE FROM expectations x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_set_aside AS (DELETE FROM set_aside x USING gone WHERE x.job = gone.job RETURNING x.job),
gone_jobs AS (DELETE FROM jobs x USING gone WHERE x.job = gone.job RETURNING x.job)
SELECT 'notices' AS name, count(*) AS rows FROM gone_notices
UNION ALL SELECT 'incidents', count(*) FROM gone_incidents
UNION ALL SELECT 'cursors', count(*) FROM gone_cursors
UNION ALL SELECT 'job_revisions', count(*) FROM gone_job_revisions
UNION ALL SELECT 'segments', count(*) FROM gone_segments
UNION ALL SELECT 'skips', count(*) FROM gone_skips
UNION ALL SELECT 'catchups', count(*) FROM gone_catchups
UNION ALL SELECT 'run_payloads', count(*) FROM gone_run_payloads
UNION ALL SELECT 'dead_letters', count(*) FROM gone_dead_letters
UNION ALL SELECT 'alert_events', count(*) FROM gone_alert_events
UNION ALL SELECT 'alert_jobs', count(*) FROM gone_alert_jobs
UNION ALL SELECT 'expectations', count(*) FROM gone_expectations
UNION ALL SELECT 'set_aside', count(*) FROM gone_set_aside
UNION ALL SELECT 'jobs', count(*) FROM gone_jobs
