-- How many secrets a tenant has. $1 tenant
SELECT count(*)::integer AS secrets FROM secrets WHERE tenant = $1
