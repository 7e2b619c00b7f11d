-- detent: compatible with 0009
-- H in a cron expression was hashed from the number of the job, and now is from its tenant and name. Jobs that have one
-- keep the times that were computed for them: their definitions get the expression that H stood for, which is the one in
-- `schedules`. Whoever registers such a job again, with H, gives it the times of its name.
UPDATE jobs j
   SET definition = jsonb_set(j.definition, '{schedule}', s.stored -> 'cron') || '{"dialect": "unix"}'
  FROM cursors c JOIN schedules s USING (schedule)
 WHERE c.job = j.job AND s.stored ->> 'kind' = 'cron'
   AND upper(coalesce(j.definition -> 'schedule' ->> 'cron', j.definition ->> 'schedule')) ~ '(^|[^A-Z])H([^A-Z]|$)';
