-- Never the waiting form: a session that waits for a lock holds a snapshot, and CREATE INDEX CONCURRENTLY in the
-- session that has the lock waits for all snapshots. $1 the key
SELECT pg_try_advisory_lock($1)
