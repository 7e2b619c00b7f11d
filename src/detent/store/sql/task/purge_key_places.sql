-- Delete places of concurrency keys whose run has ended, one page at a time, as task/purge_unique_keys. $1 scope, $2
-- key and $3 place to begin after, $4 how many are read. Returns how many were deleted and read, and the last of the
-- page. A place that was taken again meanwhile has another `taken_by`.
WITH page AS MATERIALIZED (
    SELECT scope, key, place, job, lane, scheduled_at, taken_by FROM key_places
     WHERE (scope, key, place) > ($1::bigint, $2::text, $3::smallint) ORDER BY scope, key, place LIMIT $4::integer),
last AS MATERIALIZED (SELECT scope, key, place FROM page ORDER BY scope DESC, key DESC, place DESC LIMIT 1),
over AS MATERIALIZED (
    SELECT scope, key, place, taken_by FROM page k
     WHERE NOT EXISTS (
        SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.lane AND r.scheduled_at = k.scheduled_at OFFSET 0)),
gone AS (
    DELETE FROM key_places k
     WHERE (k.scope, k.key, k.place) > ($1::bigint, $2::text, $3::smallint)
       AND (k.scope, k.key, k.place) <= ((SELECT scope FROM last), (SELECT key FROM last), (SELECT place FROM last))
       AND ((k.scope, k.key, k.place, k.taken_by) IN (SELECT scope, key, place, taken_by FROM over)) IS TRUE
    RETURNING k.scope)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM page) AS read, scope, key, place FROM last
