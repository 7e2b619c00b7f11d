-- As list_incidents, of one job. $4 only those that are open, $5 job
SELECT i.incident, i.kind, i.within, i.tick, i.misses, i.opened_at, i.closed_at, i.closed, j.id, j.name,
       (SELECT min(n.ended_at) FROM notices n WHERE n.incident = i.incident AND n.event = 'missed' AND n.error IS NULL) AS told_at,
       (SELECT n.error FROM notices n WHERE n.incident = i.incident AND n.error IS NOT NULL ORDER BY n.notice DESC LIMIT 1) AS trouble,
       CASE WHEN EXISTS (SELECT FROM run_history h WHERE h.job = i.job AND h.scheduled_at = i.tick AND h.serial = 0)
              OR EXISTS (SELECT FROM live_runs r WHERE r.job = i.job AND r.scheduled_at = i.tick AND r.serial = 0)
            THEN run_id(i.job, i.tick, 0) END AS run
  FROM jobs j JOIN incidents i ON i.job = j.job
 WHERE j.id = $5::uuid AND j.tenant = $1::integer AND i.incident < coalesce($2::bigint, 9223372036854775807)
   AND (NOT $4::boolean OR i.closed_at IS NULL)
 ORDER BY i.incident DESC LIMIT $3::bigint
