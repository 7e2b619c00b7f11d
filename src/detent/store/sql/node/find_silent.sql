-- How long to wait, in seconds, for nodes that are not evicted and have not sent a heartbeat for $1; NULL: there are
-- none.
SELECT extract(epoch FROM max(ttl))::float8 AS seconds FROM nodes WHERE NOT evicted AND beat_at < now() - $1::interval
