-- The locks that were free and are ours now; none is waited for. A lock that is taken twice must be released twice, so
-- these are only those that we do not hold. $1 the cluster, $2 partitions
SELECT key FROM unnest($2::integer[]) AS t (key) WHERE pg_try_advisory_lock($1::integer, key)
