-- Schedules that nothing has, and that were marked so long ago that whoever registers a job with one takes the mark
-- away first (keep_schedules). Not while a node is alive that does not know of marks. $1 schedules, $2 how long, $3 as
-- in expired_history
WITH old AS MATERIALIZED (
    SELECT schedule FROM schedules
     WHERE schedule = ANY ($1::integer[]) AND unused_since < least(now(), $3::timestamptz) - $2::interval
       AND (SELECT held_at IS NULL FROM cluster)
       AND NOT EXISTS (SELECT FROM nodes WHERE NOT evicted AND coalesce(knows, 0) < 12)
     ORDER BY schedule FOR UPDATE SKIP LOCKED)
DELETE FROM schedules s USING old WHERE s.schedule = old.schedule RETURNING s.schedule
