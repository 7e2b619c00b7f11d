-- $1 tenant, $2 queue name or NULL for the whole tenant, $3 concurrent runs, $4 starts per second
INSERT INTO limits (tenant, queue, max_concurrent, rate_per_second) VALUES ($1::integer, $2::text, $3::integer,
    $4::float8)
ON CONFLICT (tenant, queue) DO UPDATE SET max_concurrent = excluded.max_concurrent,
    rate_per_second = excluded.rate_per_second
