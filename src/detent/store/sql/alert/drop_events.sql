-- Delete events that no rule asks for any more. $1 limit
DELETE FROM alert_events WHERE event IN (SELECT event FROM alert_events ORDER BY event LIMIT $1::integer)
RETURNING event
