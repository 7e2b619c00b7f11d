-- Dead runs of a tenant that nobody has dealt with, by what their errors have in common; the largest groups first.
-- $1 tenant, $2 job or NULL, $3 how many of the newest runs are looked at, $4 how many groups are told
WITH dead AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, h.finished_at, h.reason, h.token FROM run_history h
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND ($2::bigint IS NULL OR h.job = $2::bigint)
       AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
     ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $3::integer),
told AS MATERIALIZED (
    SELECT d.*, error_pattern(coalesce(a.error, d.reason, '')) AS pattern
      FROM dead d LEFT JOIN attempts a ON a.job = d.job AND a.scheduled_at = d.scheduled_at AND a.serial = d.serial AND a.token = d.token)
SELECT pattern, left(md5(pattern), 12) AS "group", count(*) AS runs, count(DISTINCT job) AS jobs,
       min(scheduled_at) AS first, max(scheduled_at) AS last, max(finished_at) AS latest,
       (array_agg(run_id(job, scheduled_at, serial) ORDER BY scheduled_at DESC, job DESC, serial DESC))[1] AS sample,
       (SELECT count(*) FROM dead) AS looked_at, now() AS now
  FROM told GROUP BY pattern ORDER BY count(*) DESC, max(scheduled_at) DESC LIMIT $4::integer
