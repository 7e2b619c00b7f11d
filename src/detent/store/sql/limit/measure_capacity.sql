-- How many runs may start now under limits that this transaction has locked, and if a rate prevents it, in how many
-- seconds one more may start. $1 their numbers. A bucket that was filled later than now is void: the clock stepped
-- back.
WITH bounds AS MATERIALIZED (
    SELECT l.rate_per_second AS rate, l.max_concurrent - (
        SELECT count(*) FROM queues q JOIN live_runs r ON r.queue = q.queue AND r.limited AND r.owner IS NOT NULL
         WHERE q.tenant = l.tenant AND (l.queue IS NULL OR q.name = l.queue)) AS places,
           CASE WHEN l.rate_per_second IS NULL THEN NULL
                WHEN l.filled_at > clock_timestamp() THEN greatest(l.rate_per_second, 1)
                ELSE least(greatest(l.rate_per_second, 1),
                           l.tokens + l.rate_per_second * extract(epoch
                               FROM clock_timestamp() - l.filled_at)) END AS tokens
      FROM limits l WHERE l.number = ANY ($1::integer[]))
SELECT least(min(places), min(floor(tokens)))::bigint AS room,
       CASE WHEN min(places) IS NULL OR min(places) > min(floor(tokens))
            THEN max((floor(tokens) + 1 - tokens) / rate)::float8 END AS wait FROM bounds
