-- $1 part
UPDATE history_parts SET detached_at = coalesce(detached_at, now()) WHERE part = $1::bigint
