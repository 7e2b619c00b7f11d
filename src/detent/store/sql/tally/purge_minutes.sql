-- $1 how long minutes are kept
DELETE FROM run_minutes WHERE minute < now() - $1::interval
