-- How many jobs there are, of all tenants, that are not deleted.
SELECT count(*) AS jobs FROM (SELECT FROM jobs WHERE status <> 'deleted' LIMIT 1000) j
