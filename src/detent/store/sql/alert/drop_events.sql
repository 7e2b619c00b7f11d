-- Delete events if no rule asks for any: of no tenant, suspended or not, and of no version. $1 limit. The rules are
-- read by the snapshot that shows the events, so a rule whose events are seen is seen too.
DELETE FROM alert_events
 WHERE event IN (SELECT event FROM alert_events ORDER BY event LIMIT $1::integer)
   AND NOT EXISTS (SELECT FROM alert_rules WHERE events <> '{}')
RETURNING event
