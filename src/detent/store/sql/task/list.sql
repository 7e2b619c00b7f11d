-- The tasks of a tenant in the order of their creation, with their unfinished runs. Each number is counted up to a
-- bound, because a task may have a million runs. $1 tenant, $2 after this job, $3 limit, $4 bound, $5 limits of the
-- caller or NULL
WITH RECURSIVE page AS MATERIALIZED (
    SELECT t.job, j.id, j.name, j.status, q.name AS queue
      FROM queues q
     CROSS JOIN LATERAL (
        SELECT c.job FROM cursors c JOIN jobs j ON j.job = c.job
         WHERE c.task AND c.queue = q.queue AND c.job > $2::bigint AND j.status <> 'deleted'
           AND ($5::jsonb IS NULL OR within_limits(c.job, $5::jsonb))
         ORDER BY c.job LIMIT $3::integer) t
      JOIN jobs j ON j.job = t.job
     WHERE q.tenant = $1::integer AND starts_with(q.needs, 'task:')
     ORDER BY t.job LIMIT $3::integer),
-- Where runs of these tasks wait, from one to the next through the index: as in task/list_heads.
heads AS (
    SELECT h.* FROM page p
     CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog WHERE NOT parked AND job = p.job
         ORDER BY queue, keyed, priority, not_before LIMIT 1) h
    UNION ALL
    SELECT next.* FROM heads
     CROSS JOIN LATERAL (
        SELECT job, queue, keyed, priority, not_before FROM backlog
         WHERE NOT parked AND job = heads.job
           AND (queue, keyed, priority) > (heads.queue, heads.keyed, heads.priority)
         ORDER BY queue, keyed, priority, not_before LIMIT 1) next),
waiting AS (
    SELECT h.job, sum(r.runs) AS ready, sum(d.runs) AS delayed, min(h.not_before) AS first_at,
           max(r.runs) >= $4::integer OR max(d.runs) >= $4::integer AS more
      FROM heads h
     CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM backlog b
             WHERE NOT parked AND b.job = h.job AND b.queue = h.queue AND b.keyed = h.keyed AND b.priority = h.priority
               AND b.not_before <= now() LIMIT $4::integer) counted) r
     CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM backlog b
             WHERE NOT parked AND b.job = h.job AND b.queue = h.queue AND b.keyed = h.keyed AND b.priority = h.priority
               AND b.not_before > now() LIMIT $4::integer) counted) d
     GROUP BY h.job)
SELECT p.job, p.id, p.name, p.status, p.queue,
       coalesce(w.ready, 0)::bigint + l.ready AS ready, coalesce(w.delayed, 0)::bigint + l.delayed AS delayed,
       k.runs AS waiting_for_key, l.running,
       coalesce(w.more, false) OR k.runs >= $4::integer OR l.runs >= $4::integer AS more,
       least(CASE WHEN w.first_at <= now() THEN w.first_at END, k.first_at, l.first_at) AS oldest_ready_at
  FROM page p
  LEFT JOIN waiting w ON w.job = p.job
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs, min(not_before) AS first_at
      FROM (SELECT b.not_before FROM backlog b WHERE b.parked AND b.job = p.job LIMIT $4::integer) counted) k
 CROSS JOIN LATERAL (
    SELECT count(*) AS runs, count(*) FILTER (WHERE owner IS NOT NULL) AS running,
           count(*) FILTER (WHERE owner IS NULL AND not_before <= now()) AS ready,
           count(*) FILTER (WHERE owner IS NULL AND not_before > now()) AS delayed,
           min(not_before) FILTER (WHERE owner IS NULL AND not_before <= now()) AS first_at
      FROM (SELECT r.owner, r.not_before FROM live_runs r WHERE r.job = p.job LIMIT $4::integer) counted) l
 ORDER BY p.job
