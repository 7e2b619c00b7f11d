-- The entries of django-celery-beat with their schedules. Its tables are where Django has put them: in the search path.
SELECT t.name, t.task, t.args, t.kwargs, t.queue, t.priority, t.expires, t.expire_seconds, t.one_off, t.start_time,
       t.enabled, t.exchange, t.routing_key, t.headers, c.minute, c.hour, c.day_of_month, c.month_of_year,
       c.day_of_week, c.timezone::text AS timezone, i.every, i.period, o.clocked_time, t.solar_id
  FROM django_celery_beat_periodictask t
  LEFT JOIN django_celery_beat_crontabschedule c ON c.id = t.crontab_id
  LEFT JOIN django_celery_beat_intervalschedule i ON i.id = t.interval_id
  LEFT JOIN django_celery_beat_clockedschedule o ON o.id = t.clocked_id
 ORDER BY t.name
