-- The last messages of a rule, the newest first. $1 tenant, $2 name, $3 limit
SELECT n.notice, n.alert, n.event, n.made_at, n.tries, n.ended_at, n.error, n.due_at
  FROM alert_rules r JOIN notices n USING (rule)
 WHERE r.tenant = $1::integer AND r.name = $2 ORDER BY n.notice DESC LIMIT $3::integer
