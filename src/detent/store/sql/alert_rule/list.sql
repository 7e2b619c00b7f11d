-- Rules of a tenant by name, with the number of their open alerts, the latest time that one of these waits for, when a
-- message was last sent, and the error of the last one. $1 tenant, $2 limit, $3 one name, or NULL for all
SELECT r.rule, r.name, r.definition::text AS definition, r.created_at, r.created_by, r.changed_at, r.changed_by,
       a.open_alerts, a.waits_until, now() AS at,
       (SELECT max(n.ended_at) FROM notices n WHERE n.rule = r.rule AND n.error IS NULL) AS last_sent_at,
       (SELECT n.error FROM notices n WHERE n.rule = r.rule ORDER BY n.notice DESC LIMIT 1) AS last_error
  FROM alert_rules r CROSS JOIN LATERAL (
    SELECT count(*)::integer AS open_alerts, max(flush_at) FILTER (WHERE flush_at < 'infinity') AS waits_until
      FROM alerts WHERE rule = r.rule AND closed_at IS NULL) a
 WHERE r.tenant = $1::integer AND (r.name = $3::text OR $3::text IS NULL) ORDER BY r.name LIMIT $2::integer
