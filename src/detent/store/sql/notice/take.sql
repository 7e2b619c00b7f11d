-- Take messages that are due; no other node takes them for a while. $1 limit, $2 for how long. One message of an
-- incident at a time, so that a recovery is never sent before the miss. The tenants take turns, because a receiver that
-- hangs holds its place for ten seconds: a thousand messages to it would delay those of all others by minutes.
WITH due AS MATERIALIZED (
    SELECT x.notice, x.due_at, row_number() OVER (PARTITION BY i.tenant ORDER BY x.due_at, x.notice) AS turn
      FROM notices x JOIN incidents i USING (incident)
     WHERE x.ended_at IS NULL AND x.due_at <= now()
       AND NOT EXISTS (SELECT FROM notices y WHERE y.incident = x.incident AND y.notice < x.notice
           AND y.ended_at IS NULL)),
next AS MATERIALIZED (                       -- more than the limit: another node may be taking the first of them
    SELECT * FROM due ORDER BY turn, due_at LIMIT 4 * $1::bigint),
waiting AS MATERIALIZED (
    SELECT n.notice FROM notices n JOIN next USING (notice) WHERE n.ended_at IS NULL AND n.due_at <= now()
     ORDER BY next.turn, next.due_at LIMIT $1::bigint FOR UPDATE OF n SKIP LOCKED),
taken AS (
    UPDATE notices t SET due_at = now() + $2::interval, tries = t.tries + 1 FROM waiting WHERE t.notice = waiting.notice
    RETURNING t.*)
SELECT taken.notice, taken.event, taken.tries, now() - taken.made_at AS age, now() AS at, i.incident, i.kind, i.within,
       i.tick, i.misses, i.opened_at, i.closed_at, t.name AS tenant, j.id, j.name, j.definition->>'notify_url' AS url,
       coalesce(j.definition->>'notify_format', 'webhook') AS format, i.tenant AS tenant_number,
       EXISTS (SELECT FROM alert_rules r WHERE r.tenant = i.tenant AND 'deadline' = ANY (r.events)) AS by_rule
  FROM taken JOIN incidents i USING (incident) JOIN tenants t USING (tenant) JOIN jobs j ON j.job = i.job
 ORDER BY taken.notice
