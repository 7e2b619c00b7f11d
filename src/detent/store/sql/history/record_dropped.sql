-- $1 part
UPDATE history_parts SET dropped_at = now() WHERE part = $1::bigint
