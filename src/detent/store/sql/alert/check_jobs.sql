-- Look which jobs of open alerts have recovered. $1 limit, $2 how long until one that has not is looked at again,
-- $3 after how long a dead run is no longer waited for. A job is over it when it is deleted; after a dead run, when a
-- later run has succeeded, the last dead run was discarded, or that long ago; after a missed deadline, when no incident
-- is open; and when nothing is to be caught up, nothing is set aside, or the pause has ended.
WITH due AS MATERIALIZED (
    SELECT alert, job, kind FROM alert_jobs WHERE recovered_at IS NULL AND check_at <= now()
     ORDER BY check_at LIMIT $1::integer FOR UPDATE SKIP LOCKED)
UPDATE alert_jobs m SET check_at = now() + $2::interval, recovered_at = CASE WHEN
       NOT EXISTS (SELECT FROM jobs j WHERE j.job = m.job AND j.status <> 'deleted')
       OR CASE
           WHEN m.kind IN ('dead', 'failures') THEN m.last_at < now() - $3::interval
               OR EXISTS (SELECT FROM run_history h
                           WHERE h.job = m.job AND h.scheduled_at >= m.tick AND h.status = 1
                             AND h.finished_at > m.last_at)
               OR EXISTS (SELECT FROM run_history h
                           WHERE h.job = m.job AND h.scheduled_at = m.tick AND h.serial = m.serial AND h.status = 2
                             AND h.reason = 'discarded')
           WHEN m.kind = 'deadline' THEN
               NOT EXISTS (SELECT FROM incidents i WHERE i.job = m.job AND i.closed_at IS NULL)
           WHEN m.kind = 'catch_up' THEN
               NOT EXISTS (SELECT FROM catchups k WHERE k.job = m.job AND k.kind = 'missed')
           WHEN m.kind = 'set_aside' THEN NOT EXISTS (SELECT FROM set_aside_jobs s WHERE s.job = m.job)
           ELSE NOT EXISTS (SELECT FROM jobs j WHERE j.job = m.job AND j.status = 'paused') END
       THEN now() END
  FROM due WHERE m.alert = due.alert AND m.job = due.job AND m.kind = due.kind
RETURNING m.recovered_at IS NOT NULL AS recovered
