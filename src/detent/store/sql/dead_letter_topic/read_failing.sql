-- Dead runs that could not be forwarded so far, at most $1 counted: how many, since when, and the error of the oldest
WITH failing AS MATERIALIZED (
    SELECT made_at, error FROM dead_letters WHERE error IS NOT NULL ORDER BY letter LIMIT $1::integer)
SELECT count(*) AS letters, min(made_at) AS since, (array_agg(error ORDER BY made_at))[1] AS error FROM failing
