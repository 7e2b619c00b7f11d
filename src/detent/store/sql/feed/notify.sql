-- A hint to whoever listens, and to whoever cannot and reads it instead; nothing more. $1 channel, $2 payload
WITH fed AS (INSERT INTO changes (channel, payload) SELECT $1, $2 FROM cluster WHERE feed_until > now())
SELECT pg_notify($1, $2)
