-- Dead runs of a tenant that are not discarded, grouped by the pattern of their errors; the largest groups first. $1
-- tenant, $2 job or NULL, $3 how many of the newest runs are read, $4 how many groups are returned, $5 limits of the
-- caller or NULL
WITH dead AS MATERIALIZED (
    SELECT h.job, h.scheduled_at, h.serial, h.reason, h.token FROM run_history h
     WHERE h.status = 2 AND h.reason IS DISTINCT FROM 'discarded' AND ($2::bigint IS NULL OR h.job = $2::bigint)
       AND EXISTS (SELECT FROM jobs j WHERE j.job = h.job AND j.tenant = $1::integer)
       AND ($5::jsonb IS NULL OR within_limits(h.job, $5::jsonb))
     ORDER BY h.scheduled_at DESC, h.job DESC, h.serial DESC LIMIT $3::integer),
alike AS MATERIALIZED (                      -- first by identical text: computing patterns takes time
    SELECT d.job, coalesce(a.error, d.reason, '') AS error, count(*) AS runs, min(d.scheduled_at) AS first,
           max(ARRAY[extract(epoch FROM d.scheduled_at), d.job, d.serial]) AS newest
      FROM dead d LEFT JOIN attempts a ON a.job = d.job AND a.scheduled_at = d.scheduled_at AND a.serial = d.serial
       AND a.token = d.token
     GROUP BY d.job, coalesce(a.error, d.reason, '')),
patterns AS MATERIALIZED (SELECT error, error_pattern(error) AS pattern FROM alike GROUP BY error),
groups AS MATERIALIZED (
    SELECT pattern, sum(runs)::integer AS runs, count(DISTINCT job) AS jobs, min(first) AS first, max(newest) AS newest
      FROM alike JOIN patterns USING (error) GROUP BY pattern ORDER BY sum(runs) DESC, max(newest) DESC
     LIMIT $4::integer)
SELECT pattern, left(md5(pattern), 12) AS "group", runs, jobs, first, to_timestamp(newest[1]) AS last,
       run_id(newest[2]::bigint, to_timestamp(newest[1]), newest[3]::integer) AS sample,
       (SELECT count(*) FROM dead) AS looked_at
  FROM groups ORDER BY runs DESC, newest DESC
