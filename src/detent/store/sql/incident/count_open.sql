-- How many incidents of a tenant are open, counted up to a limit. $1 tenant, $2 limit
SELECT count(*) AS incidents FROM (
    SELECT FROM incidents WHERE tenant = $1::integer AND closed_at IS NULL LIMIT $2::integer) i
