-- Attempts that did not simply succeed and were followed by another one of their run, since $1; $2 job or NULL. The
-- attempt that runs now is not recorded yet. A stale one counts without a successor too: its effects remain. `leased`:
-- the attempt was one of a pull worker, or of a target that reports by a callback.
SELECT a.outcome, coalesce(a.node < 0, false) AS leased, count(*) AS attempts,
       count(DISTINCT (a.job, a.scheduled_at, a.serial)) AS runs,
       max(a.finished_at) AS latest, (array_agg(DISTINCT j.name))[1:3] AS names
  FROM attempts a JOIN jobs j USING (job)
 WHERE a.scheduled_at > now() - $1::interval AND ($2::bigint IS NULL OR a.job = $2::bigint)
   AND (a.outcome = 'stale'
        OR EXISTS (SELECT FROM attempts b WHERE b.job = a.job AND b.scheduled_at = a.scheduled_at
                      AND b.serial = a.serial AND b.token > a.token)
        OR EXISTS (SELECT FROM live_runs r WHERE r.job = a.job AND r.scheduled_at = a.scheduled_at
                      AND r.serial = a.serial AND r.token > a.token))
 GROUP BY 1, 2
