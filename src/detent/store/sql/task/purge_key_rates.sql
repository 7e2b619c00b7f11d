-- Delete rates of concurrency keys that no longer delay anything, one page at a time, as task/purge_unique_keys. $1
-- scope and $2 key to begin after, $3 how many are read. Returns how many were deleted and read, and the last of the
-- page.
WITH page AS MATERIALIZED (
    SELECT scope, key FROM key_rates WHERE (scope, key) > ($1::bigint, $2::text) ORDER BY scope, key LIMIT $3::integer),
last AS MATERIALIZED (SELECT scope, key FROM page ORDER BY scope DESC, key DESC LIMIT 1),
gone AS (
    DELETE FROM key_rates k
     WHERE (k.scope, k.key) > ($1::bigint, $2::text)
       AND (k.scope, k.key) <= ((SELECT scope FROM last), (SELECT key FROM last))
       AND k.next_at < now() - interval '1 hour' RETURNING k.scope)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM page) AS read, scope, key FROM last
