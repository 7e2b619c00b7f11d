-- Detach a partition with the rights of its owner, for a role that does not own it. $1 the name of the partition
SELECT detach_history_part($1::text)
