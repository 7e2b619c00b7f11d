-- Add patterns to a tenant's allow list; existing ones are unchanged. $1 tenant, $2 patterns, $3 by whom
INSERT INTO tenant_targets (tenant, pattern, created_by)
SELECT $1::integer, pattern, $3::text FROM unnest($2::text[]) AS given (pattern) ON CONFLICT DO NOTHING
