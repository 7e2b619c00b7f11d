-- $1 the key
SELECT pg_advisory_unlock($1)
