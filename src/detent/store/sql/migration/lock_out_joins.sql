-- Held by a migration until its end: no node that might not know the migration joins meanwhile. $1 the key
SELECT pg_advisory_xact_lock($1)
