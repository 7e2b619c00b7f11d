-- Delete a rule with its alerts and messages. $1 rule
WITH alert AS MATERIALIZED (SELECT alert FROM alerts WHERE rule = $1::bigint),
gone_jobs AS (DELETE FROM alert_jobs m USING alert WHERE m.alert = alert.alert),
gone_messages AS (DELETE FROM notices WHERE rule = $1::bigint),
gone_alerts AS (DELETE FROM alerts WHERE rule = $1::bigint)
DELETE FROM alert_rules WHERE rule = $1::bigint
