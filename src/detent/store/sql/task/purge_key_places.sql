-- Delete places of concurrency keys whose run has ended, one page at a time. $1 scope, $2 key and $3 place to begin
-- after, $4 how many are read. Returns how many were deleted and read, and the last of the page.
WITH page AS MATERIALIZED (
    SELECT scope, key, place, job, lane, scheduled_at, taken_by FROM key_places
     WHERE (scope, key, place) > ($1::bigint, $2::text, $3::smallint) ORDER BY scope, key, place LIMIT $4::integer),
gone AS (
    DELETE FROM key_places k USING page
     WHERE k.scope = page.scope AND k.key = page.key AND k.place = page.place AND k.taken_by = page.taken_by
       AND pg_visible_in_snapshot(k.taken_by, pg_current_snapshot())
       AND NOT EXISTS (
           SELECT FROM live_runs r WHERE r.job = k.job AND r.lane = k.lane AND r.scheduled_at = k.scheduled_at)
    RETURNING k.scope)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM page) AS read, scope, key, place FROM page
 ORDER BY scope DESC, key DESC, place DESC LIMIT 1
