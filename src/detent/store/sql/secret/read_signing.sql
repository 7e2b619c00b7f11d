-- Which secret signs the calls of each tenant that has one
SELECT tenant, signing FROM tenants WHERE signing IS NOT NULL
