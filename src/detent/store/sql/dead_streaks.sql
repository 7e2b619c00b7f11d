-- Of these jobs, those whose latest runs were all dead, as many as the job bears. Runs count that ended since the job was last
-- changed, resumed or made. $1 jobs
SELECT j.id, j.tenant, n.bears
  FROM jobs j
 CROSS JOIN LATERAL (SELECT (j.definition->>'auto_pause_after')::integer AS bears) n
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE latest.status = 2) AS dead
      FROM (SELECT h.status FROM run_history h
             WHERE h.job = j.job AND h.status IN (1, 2)
               AND h.finished_at > greatest(coalesce(j.since, j.created_at), coalesce(j.revised_at, j.created_at))
             ORDER BY h.scheduled_at DESC, h.serial DESC LIMIT n.bears) latest) l
 WHERE j.job = ANY ($1::bigint[]) AND j.status = 'active' AND n.bears IS NOT NULL AND l.dead >= n.bears
