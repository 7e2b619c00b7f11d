-- Where on-demand runs wait: job, queue, whether they have concurrency keys, and priority; with the time of the first
-- of each. $1 queue numbers that are served, NULL: all; $2 jobs, NULL: all. From one to the next through the index,
-- however many runs wait in each. `laned`: the job has a schedule, so its runs need one of its lanes. Jobs that do not
-- start runs now are left out as a whole: deleted and paused tasks, suspended tenants, and everything while the cluster
-- is held.
WITH RECURSIVE heads AS (
    (SELECT job, queue, keyed, priority, not_before FROM backlog
      WHERE NOT parked AND job >= coalesce((SELECT min(j) FROM unnest($2::bigint[]) AS j), 0)
      ORDER BY job, queue, keyed, priority, not_before LIMIT 1)
    UNION ALL
    SELECT next.* FROM heads CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog
         WHERE NOT parked AND (job, queue, keyed, priority) > (heads.job, heads.queue, heads.keyed, heads.priority)
           AND job <= coalesce((SELECT max(j) FROM unnest($2::bigint[]) AS j), 9223372036854775807)
         ORDER BY job, queue, keyed, priority, not_before LIMIT 1) next)
SELECT h.job, h.queue, h.keyed, h.priority, h.not_before, NOT c.task AS laned FROM heads h
 CROSS JOIN LATERAL (SELECT task FROM cursors WHERE job = h.job LIMIT 1) c
 CROSS JOIN LATERAL (SELECT status FROM jobs WHERE job = h.job LIMIT 1) j
 WHERE ($1::integer[] IS NULL OR h.queue = ANY ($1::integer[])) AND ($2::bigint[] IS NULL OR h.job = ANY ($2::bigint[]))
   AND (j.status = 'active' OR NOT c.task AND j.status <> 'deleted')
   AND h.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues)) AND (SELECT held_at IS NULL FROM cluster)
