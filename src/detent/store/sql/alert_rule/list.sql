-- Rules of a tenant by name, with their open alerts and what became of their last messages. $1 tenant, $2 limit, $3 one
-- name, or NULL for all
SELECT r.rule, r.name, r.definition::text AS definition, r.created_at, r.created_by, r.changed_at, r.changed_by,
       (SELECT count(*)::integer FROM alerts a WHERE a.rule = r.rule AND a.closed_at IS NULL) AS open_alerts,
       (SELECT max(n.ended_at) FROM notices n WHERE n.rule = r.rule AND n.error IS NULL) AS last_sent_at,
       (SELECT n.error FROM notices n WHERE n.rule = r.rule ORDER BY n.notice DESC LIMIT 1) AS last_error
  FROM alert_rules r
 WHERE r.tenant = $1::integer AND (r.name = $3::text OR $3::text IS NULL) ORDER BY r.name LIMIT $2::integer
