-- Every span of ticks of some jobs that reaches into (after, until], with the positions of their cursors. $1 jobs, $2
-- after, $3 until
SELECT j.job, s.since, s.until, s.anchor, s.tzdata, s.opened, s.opened_by, s.reason, s.closed, s.closed_by, s.schedule,
       c.stored, date_trunc('milliseconds', j.created_at) AS created_at, u.next_tick,
       u.job IS NULL AND j.status <> 'deleted' AS without_cursor
  FROM unnest($1::bigint[]) AS v (job)
  JOIN jobs j USING (job)
  LEFT JOIN cursors u USING (job)
  LEFT JOIN spans s ON s.job = v.job AND s.since < $3::timestamptz AND (s.until IS NULL OR s.until > $2::timestamptz)
  LEFT JOIN schedules c ON c.schedule = s.schedule
 ORDER BY j.job, s.since
