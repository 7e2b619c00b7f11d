-- Take messages of rules that are due; no other node takes them for a while. $1 limit, $2 for how long. As notice/take:
-- one message of an alert at a time, and the tenants take turns. The receiver is the one that the rule has now.
WITH due AS MATERIALIZED (
    SELECT x.notice, x.due_at, row_number() OVER (PARTITION BY r.tenant ORDER BY x.due_at, x.notice) AS turn
      FROM notices x JOIN alert_rules r USING (rule) JOIN tenants t USING (tenant)
     WHERE x.ended_at IS NULL AND x.due_at <= now() AND t.suspended_at IS NULL
       AND NOT EXISTS (SELECT FROM notices y WHERE y.alert = x.alert AND y.notice < x.notice AND y.ended_at IS NULL)),
next AS MATERIALIZED (                       -- more than the limit: another node may be taking the first of them
    SELECT * FROM due ORDER BY turn, due_at LIMIT 4 * $1::bigint),
waiting AS MATERIALIZED (
    SELECT n.notice FROM notices n JOIN next USING (notice) WHERE n.ended_at IS NULL AND n.due_at <= now()
     ORDER BY next.turn, next.due_at LIMIT $1::bigint FOR UPDATE OF n SKIP LOCKED),
taken AS (
    UPDATE notices t SET due_at = now() + $2::interval, tries = t.tries + 1 FROM waiting WHERE t.notice = waiting.notice
    RETURNING t.*)
SELECT taken.notice, taken.event, taken.tries, now() - taken.made_at AS age, now() AS at, taken.alert,
       taken.content::text AS content, r.name AS rule, r.definition::text AS definition, t.name AS tenant, r.tenant
           AS tenant_number
  FROM taken JOIN alert_rules r USING (rule) JOIN tenants t USING (tenant) ORDER BY taken.notice
