-- How many runs wait for a worker, and for how long, by the name of their queue, for autoscaling. All tenants together:
-- workers serve names. $1 how many runs are counted in total, but at least 100 at each place; $2 the maximum of names,
-- the deepest first. As in cluster/read_signals, nothing is read but the places where runs wait, and up to that bound.
WITH RECURSIVE heads AS (
    (SELECT queue, priority, not_before FROM live_runs WHERE owner IS NULL AND lane >= 0
      ORDER BY queue, priority, not_before LIMIT 1)
    UNION ALL
    SELECT n.queue, n.priority, n.not_before FROM heads h, LATERAL (
        SELECT queue, priority, not_before FROM live_runs
         WHERE owner IS NULL AND lane >= 0 AND (queue, priority) > (h.queue, h.priority)
         ORDER BY queue, priority, not_before LIMIT 1) n),
ready AS MATERIALIZED (SELECT * FROM heads WHERE not_before <= now()),
ready_tasks AS MATERIALIZED (SELECT * FROM backlog_heads WHERE startable AND not_before <= now()),
bound AS MATERIALIZED (
    SELECT greatest($1::bigint / greatest((SELECT count(*) FROM ready) + (SELECT count(*) FROM ready_tasks), 1), 100)
           AS most),
counted AS (
    SELECT h.queue, h.not_before, c.runs FROM bound, ready h CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM live_runs WHERE queue = h.queue AND priority = h.priority AND owner IS NULL AND lane >= 0
               AND not_before <= now() LIMIT bound.most) r) c
    UNION ALL
    SELECT h.queue, h.not_before, c.runs FROM bound, ready_tasks h CROSS JOIN LATERAL (
        SELECT count(*) AS runs FROM (
            SELECT FROM backlog WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority
               AND NOT parked AND not_before <= now() LIMIT bound.most) b) c)
SELECT q.name, coalesce(sum(c.runs), 0)::bigint AS runs, now() - min(c.not_before) AS oldest
  FROM queues q LEFT JOIN counted c USING (queue)
 GROUP BY q.name ORDER BY runs DESC, q.name LIMIT $2
