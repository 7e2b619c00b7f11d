-- How long to wait for nodes that nobody has evicted and that have not been heard of for long, in seconds; NULL: there
-- are none. $1 how long
SELECT extract(epoch FROM max(ttl))::float8 AS seconds FROM nodes WHERE NOT evicted AND beat_at < now() - $1::interval
