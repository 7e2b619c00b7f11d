-- Take some events, added up by job and kind; they are deleted by the transaction that adds them to alerts. $1 limit.
-- `tick`, `serial` and `detail` are those of the last one. A job that is gone has no name.
WITH batch AS MATERIALIZED (SELECT event FROM alert_events ORDER BY event LIMIT $1::integer FOR UPDATE SKIP LOCKED),
taken AS (DELETE FROM alert_events e USING batch WHERE e.event = batch.event RETURNING e.*),
last AS (SELECT DISTINCT ON (job, kind) job, kind, tick, serial, detail FROM taken ORDER BY job, kind, event DESC),
summed AS (
    SELECT job, kind, count(*) AS rows, sum(events) AS events, max(made_at) AS last_at FROM taken GROUP BY job, kind)
SELECT s.rows, s.kind, s.events, s.last_at, l.tick, l.serial, l.detail, s.job, j.tenant, j.name, q.name AS queue, j.tags
  FROM summed s JOIN last l USING (job, kind)
  LEFT JOIN jobs j USING (job) LEFT JOIN cursors c USING (job) LEFT JOIN queues q ON q.queue = c.queue
 ORDER BY s.job, s.kind
