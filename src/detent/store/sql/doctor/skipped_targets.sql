-- What jobs call whose ticks were skipped since $1 because the previous run was unfinished. $2 job or NULL. 4 skipped
SELECT DISTINCT j.tenant, coalesce(j.definition->'target'->>'url', j.definition->'target'->>'broker_url') AS url
  FROM run_history h JOIN jobs j USING (job)
 WHERE h.status = 4 AND h.reason = 'overlap' AND h.scheduled_at > now() - $1::interval
   AND ($2::bigint IS NULL OR h.job = $2::bigint)
 LIMIT 10000
