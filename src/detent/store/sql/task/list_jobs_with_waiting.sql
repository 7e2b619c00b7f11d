-- Which of these jobs have on-demand runs that wait. $1 jobs
SELECT v.job FROM unnest($1::bigint[]) AS v (job)
 WHERE EXISTS (SELECT FROM backlog b WHERE b.job = v.job AND NOT b.parked)
    OR EXISTS (SELECT FROM backlog b WHERE b.job = v.job AND b.parked)
