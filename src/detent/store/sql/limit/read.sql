-- The limits of a queue. $1 tenant, $2 queue name
SELECT max_concurrent, rate_per_second FROM limits WHERE tenant = $1::integer AND queue = $2::text
