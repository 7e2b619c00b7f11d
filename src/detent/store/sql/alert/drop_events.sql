-- Delete events if no rule uses any. Rules of suspended tenants and of newer versions count too. $1 limit. One snapshot
-- shows events and rules: a rule whose events it shows is shown, too.
DELETE FROM alert_events
 WHERE event IN (SELECT event FROM alert_events ORDER BY event LIMIT $1::integer)
   AND NOT EXISTS (SELECT FROM alert_rules WHERE events <> '{}')
RETURNING event
