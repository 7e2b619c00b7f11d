-- A message could not be sent: again after a while. $1 notice, $2 the while, $3 what the try met
UPDATE notices SET due_at = now() + $2::interval, error = $3::text WHERE notice = $1::bigint AND ended_at IS NULL
