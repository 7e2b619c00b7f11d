-- What decides which addresses calls may reach, in all tenants: the first row says whether the cluster ever had a key,
-- each of the others is the allow list of a tenant. Every process reads it every two seconds while it calls anything.
SELECT NULL::integer AS tenant, NULL::text[] AS patterns, EXISTS (SELECT FROM api_keys) AS keyed
 UNION ALL
SELECT tenant, array_agg(pattern ORDER BY pattern), NULL FROM tenant_targets GROUP BY tenant
