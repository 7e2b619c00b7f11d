-- Ticks that did not run, by reason. $1 since, $2 job or NULL. 4 skipped, 5 missed
SELECT h.status, h.reason, sum(coalesce(h.ticks, 1))::bigint AS ticks, max(coalesce(h.until, h.scheduled_at)) AS latest,
       (array_agg(DISTINCT j.name))[1:3] AS names
  FROM run_history h JOIN jobs j USING (job)
 WHERE h.status IN (4, 5) AND h.scheduled_at > now() - $1::interval AND ($2::bigint IS NULL OR h.job = $2::bigint)
 GROUP BY h.status, h.reason ORDER BY ticks DESC
