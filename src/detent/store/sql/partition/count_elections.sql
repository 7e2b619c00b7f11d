-- How often partitions changed leader in the last hour, and which did so more than once without a reason. A node that
-- joined, left, was drained or undrained is a reason for one change each. Nodes without a row are known only by their
-- elections: one that was elected within the hour may have joined and left in it, one that was elected before left.
WITH recent AS MATERIALIZED (SELECT partition, node, at FROM elections WHERE at > now() - interval '1 hour'),
earlier AS (
    SELECT DISTINCT f.node FROM (SELECT DISTINCT partition FROM recent) p, LATERAL (
        SELECT node FROM elections WHERE partition = p.partition AND at <= now() - interval '1 hour'
         ORDER BY term DESC LIMIT 1) f),
gone AS (
    SELECT node, max(changes) AS changes FROM (SELECT node, 2 AS changes FROM recent UNION SELECT node, 1
      FROM earlier) x
     WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.node = x.node AND NOT n.evicted) GROUP BY node),
reasons AS MATERIALIZED (
    SELECT (SELECT count(*) FROM nodes WHERE NOT evicted AND 'scheduler' = ANY (roles)
        AND started_at > now() - interval '1 hour')
         + (SELECT coalesce(sum(changes), 0) FROM gone)
         + (SELECT 2 * count(*) FROM nodes WHERE draining_changed_at > now() - interval '1 hour') AS changes)
SELECT (SELECT count(*) FROM recent) AS last_hour, (SELECT count(DISTINCT at) FROM recent) AS take_overs,
       (SELECT count(DISTINCT node) FROM recent) AS nodes, (SELECT count(*) FROM gone WHERE changes = 2) AS gone,
       ARRAY (SELECT recent.partition FROM recent, reasons GROUP BY recent.partition, reasons.changes
               HAVING count(*) > 1 + reasons.changes ORDER BY recent.partition) AS flapping
