-- $1 digests
SELECT schedule, digest, unused_since IS NOT NULL AS marked FROM schedules WHERE digest = ANY ($1::bytea[])
