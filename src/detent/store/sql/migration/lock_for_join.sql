-- Held by a node while it joins: no migration begins meanwhile. $1 the key
SELECT pg_advisory_xact_lock_shared($1)
