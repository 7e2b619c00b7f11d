-- A message is sent, or given up. $1 notice, $2 the try, $3 what it met, NULL: it was sent. What was sent was sent,
-- whoever has taken it since; only the last try may give it up.
UPDATE notices SET ended_at = now(), error = $3::text
 WHERE notice = $1::bigint AND ended_at IS NULL AND ($3::text IS NULL OR tries = $2::integer)
