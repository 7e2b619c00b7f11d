-- The rules of all tenants that are not suspended; the messages of the others wait.
SELECT r.rule, r.tenant, r.name, r.definition::text AS definition
  FROM alert_rules r JOIN tenants t USING (tenant) WHERE t.suspended_at IS NULL ORDER BY r.rule
