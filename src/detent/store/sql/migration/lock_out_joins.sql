-- Held by a migration to its end: no node joins meanwhile that might not know it. $1 the key
SELECT pg_advisory_xact_lock($1)
