-- Takes as many of the wanted tokens as the tenant has. They come back at a rate, up to a size. The clock is read after
-- the row is locked, and a clock that was set back costs no tokens. $1 tenant, $2 wanted, $3 tokens per second, $4 size
INSERT INTO request_budgets AS b (tenant, tokens, granted, refilled_at)
VALUES ($1::integer, $4::double precision - $2::double precision, $2::double precision, clock_timestamp())
ON CONFLICT (tenant) DO UPDATE SET (tokens, granted, refilled_at) = (
    SELECT filled.tokens - least($2::double precision, floor(filled.tokens)),
           least($2::double precision, floor(filled.tokens)), filled.at
      FROM (SELECT clock.at, least($4::double precision, b.tokens + $3::double precision
                   * greatest(0, extract(epoch FROM clock.at - b.refilled_at)::double precision)) AS tokens
              FROM (SELECT clock_timestamp() AS at) AS clock) AS filled)
RETURNING granted, tokens
