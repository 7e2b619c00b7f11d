-- A node saw the clock step: hold all ticks, unless another node has been steady in the present time for a while; in
-- that case the calling node itself was suspended. $1 node, $2 reason
WITH others AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM nodes WHERE node <> $1 AND NOT evicted AND beat_at BETWEEN now() - 2 * ttl AND now()
                      AND steady_since < now() - greatest(2 * ttl, interval '30 seconds')) AS steady),
held AS (
    UPDATE cluster SET held_at = now(), held_by = 'clock', held_reason = $2
     WHERE held_at IS NULL AND NOT (SELECT steady FROM others))
SELECT steady FROM others
