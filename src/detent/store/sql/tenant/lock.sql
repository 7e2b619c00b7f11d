-- Lock a tenant until the change is made. $1 name. Its quotas are read after that, so that two concurrent changes of
-- different quotas both take effect.
SELECT tenant FROM tenants WHERE name = $1::text FOR NO KEY UPDATE
