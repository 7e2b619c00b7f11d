-- Where on-demand runs wait: job, queue, whether they have concurrency keys, and priority; with the time of the first
-- of each, and the seconds until then. $1 queue numbers that are served, NULL: all; $2 jobs, without repeats, NULL:
-- all. From one to the next through the index, however many runs wait in each. `laned`: the job has a schedule, so its
-- runs need one of its lanes. Jobs that do not start runs now are left out as a whole: deleted and paused tasks,
-- suspended tenants, and everything while the cluster is held.
WITH RECURSIVE spans AS (                    -- the jobs to read: one after another, or each of $2 by itself
    SELECT job AS first, job AS last FROM unnest($2::bigint[]) AS job
    UNION ALL SELECT 0, 9223372036854775807 WHERE $2::bigint[] IS NULL),
heads AS (
    SELECT spans.last, head.* FROM spans CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog
         WHERE NOT parked AND job >= spans.first AND job <= spans.last
         ORDER BY job, queue, keyed, priority, not_before LIMIT 1) head
    UNION ALL
    SELECT heads.last, next.* FROM heads CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog
         WHERE NOT parked AND (job, queue, keyed, priority) > (heads.job, heads.queue, heads.keyed, heads.priority)
           AND job <= heads.last
         ORDER BY job, queue, keyed, priority, not_before LIMIT 1) next)
SELECT h.job, h.queue, h.keyed, h.priority, h.not_before, NOT c.task AS laned,
       extract(epoch FROM h.not_before - clock_timestamp())::float8 AS wait
  FROM heads h
 CROSS JOIN LATERAL (SELECT task FROM cursors WHERE job = h.job LIMIT 1) c
 CROSS JOIN LATERAL (SELECT status FROM jobs WHERE job = h.job LIMIT 1) j
 WHERE ($1::integer[] IS NULL OR h.queue = ANY ($1::integer[]))
   AND (j.status = 'active' OR NOT c.task AND j.status <> 'deleted')
   AND h.queue <> ALL (ARRAY(SELECT queue FROM suspended_queues))
   AND (NOT c.task OR (SELECT held_at IS NULL FROM cluster))
