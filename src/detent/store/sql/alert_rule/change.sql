-- Change a rule. $1 rule, $2 definition, $3 events that are asked for, $4 who
UPDATE alert_rules SET definition = $2::jsonb, events = $3::text[], changed_at = now(), changed_by = $4
 WHERE rule = $1::bigint
