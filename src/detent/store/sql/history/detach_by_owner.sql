-- $1 the name of a partition, by a role that does not own it
SELECT detach_history_part($1::text)
