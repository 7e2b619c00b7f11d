-- $1 tenant, $2 by whom, $3 reason. The time of the first suspension stays.
UPDATE tenants SET suspended_at = coalesce(suspended_at, now()), suspended_by = $2::text, suspended_reason = $3::text
 WHERE tenant = $1::integer
