-- Lock the rules of these tenants, in one order for all nodes. $1 tenants
SELECT rule, tenant, name, definition::text AS definition, now() AS at FROM alert_rules
 WHERE tenant = ANY ($1::integer[]) ORDER BY rule FOR NO KEY UPDATE
