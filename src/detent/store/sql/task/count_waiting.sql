-- How many on-demand runs of a tenant wait, by queue and status. $1 tenant, $2 name of the queue or NULL for all, $3
-- how many are counted at the places where more than 100 wait, all together. `more`: there are more than were counted.
-- `ready`: those that wait for a worker and for nothing else; `oldest`: since when the first of them has waited.
WITH RECURSIVE heads AS MATERIALIZED (
    SELECT h.*, q.name, f.few FROM backlog_heads h
     CROSS JOIN LATERAL (SELECT name FROM queues WHERE queue = h.queue LIMIT 1) q
     CROSS JOIN LATERAL (
        SELECT count(*) < 100 AS few FROM (
            SELECT FROM backlog WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority
               AND NOT parked LIMIT 100) first) f
     WHERE h.tenant = $1::integer AND ($2::text IS NULL OR q.name = $2::text)),
parked_jobs AS (
    (SELECT job FROM backlog WHERE parked ORDER BY job, key LIMIT 1)
    UNION ALL
    SELECT next.job FROM parked_jobs CROSS JOIN LATERAL (
        SELECT job FROM backlog WHERE parked AND job > parked_jobs.job ORDER BY job, key LIMIT 1) next),
parked AS MATERIALIZED (
    SELECT p.job, f.few FROM parked_jobs p
     CROSS JOIN LATERAL (SELECT tenant FROM jobs WHERE job = p.job LIMIT 1) j
     CROSS JOIN LATERAL (
        SELECT count(*) < 100 AS few FROM (SELECT FROM backlog WHERE job = p.job AND parked LIMIT 100) first) f
     WHERE j.tenant = $1::integer),
bound AS MATERIALIZED (
    SELECT greatest($3::bigint / greatest((SELECT count(*) FROM heads WHERE NOT few)
                                        + (SELECT count(*) FROM parked WHERE NOT few), 1), 100) AS most),
counted AS (
    SELECT h.name, b.*, b.pending + b.retrying >= bound.most AS more,
           CASE WHEN h.startable THEN b.due ELSE 0 END AS ready,
           CASE WHEN h.startable AND h.not_before <= now() THEN h.not_before END AS oldest
      FROM bound CROSS JOIN heads h CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE attempt = 1 AND crashes = 0) AS pending,
               count(*) FILTER (WHERE attempt > 1 OR crashes > 0) AS retrying,
               count(*) FILTER (WHERE not_before <= now()) AS due
          FROM (SELECT attempt, crashes, not_before FROM backlog
                 WHERE job = h.job AND queue = h.queue AND keyed = h.keyed AND priority = h.priority AND NOT parked
                 ORDER BY not_before LIMIT bound.most) found) b
    UNION ALL
    SELECT q.name, b.pending, b.retrying, 0, b.total >= bound.most, 0, NULL
      FROM bound CROSS JOIN parked p CROSS JOIN LATERAL (
        SELECT queue, count(*) FILTER (WHERE attempt = 1 AND crashes = 0) AS pending,
               count(*) FILTER (WHERE attempt > 1 OR crashes > 0) AS retrying, sum(count(*)) OVER () AS total
          FROM (SELECT queue, attempt, crashes FROM backlog WHERE job = p.job AND parked LIMIT bound.most) found
         GROUP BY queue) b
     CROSS JOIN LATERAL (SELECT name FROM queues WHERE queue = b.queue LIMIT 1) q
     WHERE $2::text IS NULL OR q.name = $2::text)
SELECT name, sum(pending)::bigint AS pending, sum(retrying)::bigint AS retrying, bool_or(more) AS more,
       sum(ready)::bigint AS ready, min(oldest) AS oldest
  FROM counted GROUP BY name ORDER BY name
