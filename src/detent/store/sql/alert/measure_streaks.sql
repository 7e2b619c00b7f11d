-- How many of the last runs of these jobs were dead, one after the other, up to $2. $1 jobs. Status 1 is succeeded,
-- 2 dead; others, such as cancelled, neither end nor lengthen a streak.
SELECT j.job, count(*) FILTER (WHERE s.dead)::integer AS dead
  FROM unnest($1::bigint[]) AS j (job) CROSS JOIN LATERAL (
    SELECT bool_and(h.status = 2) OVER (ORDER BY h.scheduled_at DESC, h.serial DESC) AS dead
      FROM (SELECT status, scheduled_at, serial FROM run_history
             WHERE job = j.job AND status IN (1, 2) ORDER BY scheduled_at DESC, serial DESC LIMIT $2::integer) h) s
 GROUP BY j.job
