-- $1 tenant, $2 how many rows are deleted so far, by table
UPDATE tenants SET deleted_rows = $2::jsonb WHERE tenant = $1::integer
