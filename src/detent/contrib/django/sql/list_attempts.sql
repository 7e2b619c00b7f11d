-- The attempts of one run that were kept, from the first to the last.
SELECT a.token, a.node, a.started_at, a.outcome, a.error, a.traceback
  FROM {schema}.attempts a
 WHERE a.job = %(job)s AND a.scheduled_at = %(scheduled_at)s AND a.serial = %(serial)s
 ORDER BY a.token, a.finished_at
