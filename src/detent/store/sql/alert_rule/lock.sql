-- Lock one rule. $1 tenant, $2 name
SELECT rule, definition::text AS definition FROM alert_rules WHERE tenant = $1::integer AND name = $2 FOR NO KEY UPDATE
