-- Runs of jobs with a schedule that were requested: re-runs of a tick, and manual runs. $1 since, $2 job or NULL, $3
-- the serial where manual runs begin
SELECT count(*) FILTER (WHERE h.serial < $3::integer) AS repeated,
       count(*) FILTER (WHERE h.serial >= $3::integer) AS manual, max(h.scheduled_at) AS latest,
       (array_agg(DISTINCT j.name))[1:3] AS names
  FROM run_history h JOIN jobs j USING (job) JOIN cursors c USING (job)
 WHERE NOT c.task AND h.serial > 0 AND h.scheduled_at > now() - $1::interval
   AND ($2::bigint IS NULL OR h.job = $2::bigint)
