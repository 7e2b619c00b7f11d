-- $1 the cluster, $2 partitions
SELECT key, pg_advisory_unlock($1::integer, key) AS released FROM unnest($2::integer[]) AS t (key)
