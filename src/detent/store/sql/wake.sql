-- A hint to whoever listens, nothing more. $1 channel, $2 payload
SELECT pg_notify($1, $2)
