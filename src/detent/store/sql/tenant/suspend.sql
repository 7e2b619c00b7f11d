-- After tenant/lock. $1 tenant, $2 by whom, $3 reason. The time of the first suspension stays.
WITH closed AS (
    INSERT INTO suspended_queues (queue) SELECT queue FROM queues WHERE tenant = $1::integer ON CONFLICT DO NOTHING)
UPDATE tenants SET suspended_at = coalesce(suspended_at, now()), suspended_by = $2::text, suspended_reason = $3::text
 WHERE tenant = $1::integer
