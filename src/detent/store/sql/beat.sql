-- No row: evicted, stop at once; an evicted node cannot come back. The remaining time is returned because a beat that
-- waited for a lock can come back already expired. $1 node, $2 clock offset
UPDATE nodes SET expires_at = now() + ttl, beat_at = now(), clock_offset = $2 WHERE node = $1 AND NOT evicted
RETURNING expires_at - clock_timestamp() AS remaining, (SELECT incarnation FROM cluster) AS incarnation,
          clock_timestamp() AS at
