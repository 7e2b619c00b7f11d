-- Renew the node's row. $1 node, $2 clock offset, $3 the expected time, $4 the allowed deviation (NULL: any), $5 since
-- when the node's process has seen no clock step (NULL: since now). Always returns one row.
-- `stepped`: the clock is not as expected and nothing was written, so that no node counts as alive in the new time
-- before the step was examined. No remaining time: the node was evicted and must stop immediately; an evicted node
-- cannot come back. The remaining time is returned because a heartbeat that waited for a lock can return already
-- expired.
WITH clock AS MATERIALIZED (
    SELECT coalesce(clock_timestamp() NOT BETWEEN $3::timestamptz - $4::interval AND $3::timestamptz + $4::interval,
           false) AS stepped),
renewed AS (
    UPDATE nodes SET expires_at = now() + ttl, beat_at = now(), clock_offset = $2, steady_since = coalesce($5, now())
      FROM clock WHERE node = $1 AND NOT evicted AND NOT stepped RETURNING expires_at)
SELECT stepped, (SELECT expires_at FROM renewed) - clock_timestamp() AS remaining, c.incarnation,
       c.held_at IS NOT NULL AS held, w.timeline, clock_timestamp() AS at
  FROM clock, cluster c, whereabouts w
