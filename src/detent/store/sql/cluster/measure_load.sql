-- Whether ticks are held, and how far behind the oldest work is: the oldest tick that is due and not fired, found in
-- each partition's part of the index, and the oldest run that is ready and not claimed, found by skipping from one
-- queue and priority to the next, also among on-demand runs.
WITH RECURSIVE heads AS (
    (SELECT queue, priority, not_before FROM live_runs WHERE owner IS NULL AND lane >= 0
      ORDER BY queue, priority, not_before LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.not_before FROM heads h, LATERAL (
        SELECT queue, priority, not_before FROM live_runs
         WHERE owner IS NULL AND lane >= 0 AND (queue, priority) > (h.queue, h.priority)
         ORDER BY queue, priority, not_before LIMIT 1) n)
SELECT c.held_at, c.held_by, c.held_reason, NOT EXISTS (SELECT FROM jobs) OR EXISTS (
           SELECT FROM cluster JOIN whereabouts USING (system_identifier, database_oid, table_oid,
       timeline)) AS original, now() - (SELECT min(d.fire_at) FROM generate_series(0, 255) AS p (partition), LATERAL (
                    SELECT fire_at FROM cursors WHERE partition = p.partition AND fire_at <= now()
                     ORDER BY fire_at LIMIT 1) d) AS oldest_due,
       now() - (SELECT min(not_before) FROM (
           SELECT not_before FROM heads UNION ALL SELECT not_before FROM backlog_heads WHERE startable) ready
         WHERE not_before <= now()) AS oldest_ready,
       (SELECT count(*) FROM (SELECT FROM set_aside_jobs LIMIT 1000) s) AS set_aside
  FROM cluster c
