-- Attempts that did not simply succeed, since $1; $2 job or NULL.
SELECT a.outcome, count(*) AS attempts, count(DISTINCT (a.job, a.scheduled_at, a.serial)) AS runs,
       max(a.finished_at) AS latest, (array_agg(DISTINCT j.name))[1:3] AS names
  FROM attempts a JOIN jobs j USING (job)
 WHERE a.scheduled_at > now() - $1::interval AND ($2::bigint IS NULL OR a.job = $2::bigint)
 GROUP BY a.outcome
