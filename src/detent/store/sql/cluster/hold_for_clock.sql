-- A node saw the clock step: hold all ticks, unless another node has been steady in the present time for a while; in
-- that case the calling node itself was suspended. The hold is recorded here, because this is a single statement on the
-- connection of the heartbeat. $1 node, $2 reason
WITH others AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM nodes WHERE node <> $1 AND NOT evicted AND beat_at BETWEEN now() - 2 * ttl AND now()
                      AND steady_since < now() - greatest(2 * ttl, interval '30 seconds')) AS steady),
held AS (
    UPDATE cluster SET held_at = now(), held_by = 'clock', held_reason = $2::text
     WHERE held_at IS NULL AND NOT (SELECT steady FROM others) RETURNING held_reason),
recorded AS (
    INSERT INTO audit_events (actor_kind, actor_name, action, object_kind, after)
    SELECT 'detent', 'detent', 'cluster.pause', 'cluster', jsonb_build_object('reason', held_reason) FROM held)
SELECT steady FROM others
