-- How many rules a tenant has. $1 tenant
SELECT count(*)::integer AS rules FROM alert_rules WHERE tenant = $1::integer
