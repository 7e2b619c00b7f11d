-- $1 name. Locked until the change is made; what it has is read after that, so that two changes of different quotas
-- count.
SELECT tenant FROM tenants WHERE name = $1::text FOR NO KEY UPDATE
