-- Take the locks that are free, without waiting, and return them. A lock that is taken twice must be released twice, so
-- these are only those that this session does not hold. $1 the cluster, $2 partitions
SELECT key FROM unnest($2::integer[]) AS t (key) WHERE pg_try_advisory_lock($1::integer, key)
