-- After tenant/lock. $1 tenant
WITH opened AS (DELETE FROM suspended_queues s USING queues q WHERE q.queue = s.queue AND q.tenant = $1::integer)
UPDATE tenants SET suspended_at = NULL, suspended_by = NULL, suspended_reason = NULL WHERE tenant = $1::integer
