-- Schedules of former spans. $1 and $2 after this job and beginning, $3 how many spans
WITH page AS MATERIALIZED (
    SELECT job, since, schedule FROM segments WHERE (job, since) > ($1::bigint, $2::timestamptz) ORDER BY job, since
     LIMIT $3::integer),
last AS (SELECT job, since FROM page ORDER BY job DESC, since DESC LIMIT 1)
SELECT (SELECT job FROM last) AS job, (SELECT since FROM last) AS since, ARRAY(SELECT DISTINCT schedule
  FROM page) AS schedules
