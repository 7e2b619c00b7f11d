-- Send a hint to sessions that LISTEN, and write it for those that cannot and read the feed instead. $1 channel, $2
-- payload
WITH fed AS (INSERT INTO changes (channel, payload) SELECT $1, $2 FROM cluster WHERE feed_until > now())
SELECT pg_notify($1, $2)
