-- $1 name of the tenant, $2 the secret that signs its calls, or NULL
UPDATE tenants SET signing = $2 WHERE name = $1 RETURNING tenant
