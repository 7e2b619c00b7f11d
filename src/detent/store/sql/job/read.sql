-- Jobs as the API shows them, in the order of $1 (numbers). The newest run that was started is in live_runs, or in
-- history: not before the day of the last tick that was accounted for, because a range of ticks ends with its day, or
-- not before the job was created. So no other partition is read. Runs that wait in the backlog do not count.
SELECT j.job, j.id, j.tenant, j.name, j.status, j.revision, j.definition, j.owner, j.reason, j.created_at, j.updated_at,
       c.next_tick, CASE WHEN j.status = 'paused' THEN j.opened_by END AS paused_by, j.paused_until,
       CASE WHEN j.status = 'paused' THEN coalesce(j.on_resume, 'skip') END AS on_resume,
       coalesce(live.scheduled_at, past.scheduled_at) AS last_run_at, live.status AS live_status,
       past.status AS past_status,
       CASE WHEN c.skips THEN ARRAY(
           SELECT s.tick FROM skips s WHERE s.job = j.job AND s.tick >= c.next_tick ORDER BY s.tick LIMIT 1000) END
         AS skips
  FROM unnest($1::bigint[]) WITH ORDINALITY AS v (job, position)
  JOIN jobs j USING (job)
  JOIN cursors c USING (job)
  LEFT JOIN LATERAL (
    SELECT scheduled_at, status FROM run_history
     WHERE job = j.job
       AND scheduled_at >= CASE WHEN c.last_tick > '-infinity' THEN date_trunc('day', c.last_tick)
                                WHEN c.serials > 0 THEN c.last_tick ELSE date_trunc('day', j.created_at) END
     ORDER BY scheduled_at DESC, serial DESC LIMIT 1) past ON true
  LEFT JOIN LATERAL (
    SELECT scheduled_at,
           CASE WHEN owner IS NOT NULL THEN 'running' WHEN attempt > 1 OR crashes > 0 THEN 'retrying'
               ELSE 'pending' END AS status
      FROM live_runs
     WHERE job = j.job AND scheduled_at >= coalesce(past.scheduled_at, '-infinity')
     ORDER BY scheduled_at DESC, serial DESC LIMIT 1) live ON true
 ORDER BY v.position
