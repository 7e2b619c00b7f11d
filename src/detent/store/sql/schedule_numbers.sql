-- $1 digests
SELECT schedule, digest FROM schedules WHERE digest = ANY ($1::bytea[])
