-- Delete schedules that are not used and were marked so long ago that every registration of a job with one removes the
-- mark first (schedule/keep). Not while a node is alive whose version does not know the marks. $1 schedules, $2 how
-- long, $3 the time as in history/list_expired
WITH old AS MATERIALIZED (
    SELECT schedule FROM schedules
     WHERE schedule = ANY ($1::integer[]) AND unused_since < least(now(), $3::timestamptz) - $2::interval
       AND (SELECT held_at IS NULL FROM cluster)
       AND NOT EXISTS (SELECT FROM nodes WHERE NOT evicted AND coalesce(knows, 0) < 12)
     ORDER BY schedule FOR UPDATE SKIP LOCKED)
DELETE FROM schedules s USING old WHERE s.schedule = old.schedule RETURNING s.schedule
