-- Of these jobs, those whose latest runs were all dead, as many as auto_pause_after allows. Only runs count that ended
-- since the job was last changed, resumed or made. All of the latest runs must have ended since then; older runs are
-- not searched for others. $1 jobs
SELECT j.id, j.tenant, n.bears
  FROM jobs j
 CROSS JOIN LATERAL (SELECT (j.definition->>'auto_pause_after')::integer AS bears) n
 CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE latest.status = 2 AND latest.finished_at > greatest(
               coalesce(j.since, j.created_at), coalesce(j.revised_at, j.created_at))) AS dead
      FROM (SELECT h.status, h.finished_at FROM run_history h WHERE h.job = j.job AND h.status IN (1, 2)
             ORDER BY h.scheduled_at DESC, h.serial DESC LIMIT n.bears) latest) l
 WHERE j.job = ANY ($1::bigint[]) AND j.status = 'active' AND n.bears IS NOT NULL AND l.dead >= n.bears
