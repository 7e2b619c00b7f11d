-- A message is sent, or given up. $1 notice, $2 what the last try met, NULL: it was sent
UPDATE notices SET ended_at = now(), error = $2::text WHERE notice = $1::bigint AND ended_at IS NULL
