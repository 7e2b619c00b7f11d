-- Delete former definitions beyond the newest $1 of each job, one page at a time; except those that an unfinished run
-- needs, because it runs the definition it was fired with. A job with on-demand runs in the backlog keeps all of them:
-- to find the oldest that is needed there would read every run that waits. $2 and $3 after this job and revision, $4
-- how many are read
WITH page AS MATERIALIZED (
    SELECT job, revision FROM job_revisions WHERE (job, revision) > ($2::bigint, $3::integer) ORDER BY job, revision
     LIMIT $4::integer),
last AS (SELECT job, revision FROM page ORDER BY job DESC, revision DESC LIMIT 1),
gone AS (
    DELETE FROM job_revisions r USING page p, jobs j
     WHERE r.job = p.job AND r.revision = p.revision AND j.job = p.job AND p.revision < j.revision - $1::integer
       AND NOT EXISTS (SELECT FROM live_runs l WHERE l.job = p.job AND l.revision = p.revision)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = p.job AND NOT b.parked)
       AND NOT EXISTS (SELECT FROM backlog b WHERE b.job = p.job AND b.parked)
    RETURNING r.job)
SELECT (SELECT job FROM last) AS job, (SELECT revision FROM last) AS revision, (SELECT count(*) FROM gone) AS gone
