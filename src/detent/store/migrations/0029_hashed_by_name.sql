-- detent: compatible with 0009
-- H in a cron expression was hashed from the number of the job, and now is from its tenant and name. And an expression
-- with ? and a weekday as a number was read as one of Unix cron, and now is refused, because Quartz counts from Sunday
-- as 1. Jobs that have one keep the times that were computed for them: their definitions get the expression that it
-- stood for, which is the one in `schedules`. Whoever registers a job again, with H, gives it the times of its name.
WITH written AS (
    SELECT j.job, s.stored -> 'cron' AS computed, coalesce(j.definition ->> 'dialect', 'unix') AS dialect,
           upper(coalesce(j.definition -> 'schedule' ->> 'cron', j.definition ->> 'schedule')) AS cron
      FROM jobs j JOIN cursors c USING (job) JOIN schedules s USING (schedule)
     WHERE s.stored ->> 'kind' = 'cron')
UPDATE jobs j
   SET definition = jsonb_set(j.definition, '{schedule}', written.computed) || '{"dialect": "unix"}'
  FROM written
 WHERE written.job = j.job
   AND (written.cron ~ '(^|[^A-Z])H([^A-Z]|$)'
        OR (written.cron ~ '\?\s+\S+\s+\S*[0-7]' AND written.dialect = 'unix'));
